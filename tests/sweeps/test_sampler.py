"""Settings that Optuna proposes in batches: the same ones for the same seed, whatever the ranks and interruptions."""

import math
import shutil

import pytest
import yaml

from mpies.comm.serial import Serial
from mpies.config.loading import read_yaml
from mpies.core.errors import REQUEUE, ConfigError
from mpies.sweeps.folder import SweepFolder
from mpies.sweeps.sampler import Sampler
from mpies.sweeps.table import print_ending
from mpies.sweeps.train_sweep import SweepRequest, train_sweep
from mpies.sweeps.trials import SweepOptions, read_sweep
from mpies.training.control import Signals
from tests.support import assert_refused, invoke

pytest.importorskip("optuna")

NUMBERS = {"solver.sigma": {"log_uniform": [0.01, 1]}, "solver.momentum": {"uniform": [0, 0.9]}}
MIXED = {**NUMBERS, "policy.hidden": [[], [8], [8, 8]], "solver.episodes": {"integer": [1, 4]}, "policy.kind": ["mlp"]}


def value(settings):
    """What a made-up trial comes to: best at sigma 0.1, and without momentum."""
    return -abs(math.log10(settings["solver.sigma"]) + 1) - settings["solver.momentum"]


def run_study(kind, vary, seed=1, batches=8, size=6):
    sampler, made, values = Sampler(kind, size, vary, seed), [], []
    for _ in range(batches):
        made.append(sampler.propose(made, values, 1000))
        values.append([value(settings) for settings in made[-1]])
    return made, values


@pytest.mark.parametrize(("kind", "vary"), [("tpe", MIXED), ("cma", NUMBERS)])
def test_batches_follow_from_the_seed_and_the_values_and_get_better(kind, vary):
    made, values = run_study(kind, vary)
    assert made[:3] == run_study(kind, vary, batches=3)[0] and run_study(kind, vary, seed=2, batches=1)[0] != made[:1]
    # A sampler that begins in the middle, as after an interruption, goes on with the same batch.
    assert Sampler(kind, 6, vary, 1).propose(made[:5], values[:5], 1000) == made[5]
    settings = [one for batch in made for one in batch]
    assert all(0.01 <= one["solver.sigma"] <= 1 and 0 <= one["solver.momentum"] <= 0.9 for one in settings)
    assert sum(values[-1]) > sum(values[0]) and max(map(max, values[4:])) > max(values[0])
    if kind == "tpe":
        assert {one["policy.kind"] for one in settings} == {"mlp"}
        assert all(one["policy.hidden"] in MIXED["policy.hidden"] for one in settings)


def test_failed_trials_are_told_as_failed():
    made, _ = run_study("tpe", NUMBERS, batches=1)
    assert len(Sampler("tpe", 6, NUMBERS, 1).propose(made, [[math.nan] * 6], 4)) == 4


def test_a_batch_of_another_version_is_refused():
    made, values = run_study("tpe", NUMBERS, batches=1)
    made[0][2]["solver.sigma"] = 0.5
    with pytest.raises(ConfigError, match="this version of Optuna proposes other settings for batch 1"):
        Sampler("tpe", 6, NUMBERS, 1).propose(made, values, 6)


BASE = """
environment: {id: "function:sphere", dimension: 3, shift: 1}
solver: {population: 8}
noise: {size: 1000}
stop: {generations: 2}
"""
ARGUMENTS = ["solver.sigma={log_uniform: [0.01, 1]}", "--trials", "4", "--seeds", "1", "--sampler", "kind=tpe,batch=2"]


@pytest.fixture(scope="module")
def trained_sweep(tmp_path_factory):
    """A folder with config.yaml and the sweep of ARGUMENTS in out."""
    folder = tmp_path_factory.mktemp("trained_sweep")
    (folder / "config.yaml").write_text(BASE)
    outcome = invoke("sweep", folder / "config.yaml", *ARGUMENTS, "--out", folder / "out")
    assert outcome.code == 0 and "4 of 4 trials finished" in outcome.stdout, outcome.stderr
    return folder


@pytest.fixture
def record(trained_sweep, here):
    """What was proposed in a copy of that sweep, in whose folder the test is."""
    shutil.copytree(trained_sweep, here, dirs_exist_ok=True)
    return here / "out" / "batches.yaml"


def sweep(*arguments, code=None):
    return invoke("sweep", "config.yaml", *arguments, "--out", "out", code=code)


def test_a_sweep_trains_what_is_proposed(record):
    """Without the last batch and the last trial, as a kill may leave it, the same is proposed again."""
    before, content = record.read_bytes(), read_yaml(record)
    assert [len(batch) for batch in content["batches"]] == [2, 2]
    read = read_sweep(read_yaml(record.with_name("sweep.yaml")), "sweep")
    folder = SweepFolder("out", read)
    assert folder.count_left() == 0 and not folder.may_grow and len(folder.trials) == 4
    record.write_text(yaml.safe_dump({name: content[name][:-1] for name in ("batches", "values")}))
    folder = SweepFolder("out", read)
    assert folder.count_left() == 2 and folder.may_grow
    sweep(*ARGUMENTS, code=0)
    assert record.read_bytes() == before


def test_a_damaged_record_of_the_settings_is_refused_and_made_again_where_it_is_removed(record):
    before = record.read_bytes()
    for content in ("", "batches: 3", "values: []", "batches: [[{solver.population: 4}]]"):
        record.write_text(content)
        assert_refused(sweep(*ARGUMENTS), "batches.yaml: does not hold settings of this sweep; remove it")
    record.unlink()
    sweep(*ARGUMENTS, code=0)
    assert record.read_bytes() == before


def test_a_signal_behind_a_batch_leaves_the_settings_that_are_yet_to_be_proposed(here, write_config, capsys):
    options, config = SweepOptions("2", 5, sampler="kind=tpe,batch=2"), write_config(BASE)
    signals = Signals(owns_process=False)

    def report(result, ended, total, out):
        assert total == 10
        if ended == 4:
            signals.raised = 0.0

    try:
        request = SweepRequest(lambda: options.load(config, ARGUMENTS[:1]), "out", report=report)
        code, results = train_sweep(Serial(), request, signals)
    finally:
        signals.restore()
    assert code == REQUEUE and len(results.refresh()) == 4
    print_ending(results)
    assert "out: 4 of 10 trials finished, 6 left; the same command continues" in capsys.readouterr().out


def test_what_was_proposed_stays_although_its_evaluations_change(record):
    before = read_yaml(record)
    more = [{"4": "5", "1": "2"}.get(word, word) for word in ARGUMENTS]
    outcome = sweep(*more, "stop.generations=3", code=0)
    after = read_yaml(record)
    sigmas = [[[one["solver.sigma"] for one in batch] for batch in made["batches"][:2]] for made in (before, after)]
    assert sigmas[0] == sigmas[1] and after["values"][:1] == before["values"] != [[0, 0]]
    assert sum(map(len, after["batches"])) == 5 and "10 of 10 trials finished" in outcome.stdout
    other = [word.replace("0.01", "0.02") for word in ARGUMENTS]
    assert_refused(sweep(*other), "solver.sigma", "another --out")
    more = "solver.sigma_decay={uniform: [0.9, 1]}"
    words = "what varies: 'solver.sigma' there, 'solver.sigma, solver.sigma_decay' now"
    assert_refused(sweep(more, *ARGUMENTS), "contains another sweep", words)
