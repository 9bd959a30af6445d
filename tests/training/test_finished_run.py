"""A run that is complete and is started again: it says so at once, and how to go on."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from mpies.config.loading import load_config
from mpies.runs.formats.metrics import read_digests, read_metrics
from mpies.training.finished_run import find_finished_run
from tests.support import read_files, train

# Environments that are built once and for all when the run is trained: without box.py there is none to build.
CONFIG = """
environment: {id: "box.py:Box"}
policy: {hidden: []}
solver: {population: 4}
noise: {size: 10000}
evaluation: {every: 2, episodes: 3}
stop: {generations: 4}
"""


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """A folder with config.yaml, box.py, and the run of it that is complete; not to be changed."""
    folder = tmp_path_factory.mktemp("complete")
    (folder / "box.py").write_text("from tests.envs.misbehaving import Good as Box\n")
    train(folder, CONFIG)
    (folder / "run.yaml").rename(folder / "config.yaml")
    return folder


@pytest.fixture
def folder(complete, tmp_path):
    """A copy of the folder, without the environment."""
    return shutil.copytree(complete, tmp_path, ignore=lambda *_: ["box.py"], dirs_exist_ok=True)


@pytest.fixture
def fresh(complete, tmp_path):
    """A copy of the folder, without the run."""
    return shutil.copytree(complete, tmp_path, ignore=lambda *_: ["run"], dirs_exist_ok=True)


def find(folder, *overrides):
    return find_finished_run(folder / "run", load_config(folder / "config.yaml", overrides))


@pytest.mark.parametrize("flags", [[], ["--ranks", "2"]])
def test_it_is_one_line_and_nothing_is_built_or_changed(flags, folder, run_mpies):
    before, mean = read_files(folder), float(read_metrics(folder / "run")[-1]["eval_mean"])
    outcome = run_mpies(0, "train", "config.yaml", "--out", "run", *flags)
    assert (outcome.code, outcome.stderr) == (0, "")  # without box.py: nobody has built the environment
    (line,) = [line for line in outcome.stdout.splitlines() if flags == [] or "is complete" in line]
    assert line.startswith(f"run: is complete (all generations done; generation 4, evaluation {mean:.2f} +- ")
    cure = "repeat the command with --out run stop.generations=8; for a new run, with another --out"
    assert line.endswith(f"to train it further, {cure}")
    assert read_files(folder) == before and (folder / "run" / "finished.yaml").exists()


def test_for_log_viewers_it_is_an_object(folder, run_mpies):
    entry = json.loads(run_mpies(0, "train", "config.yaml", "--out", "run", "--log-format", "json").stdout)
    mean = float(read_metrics(folder / "run")[-1]["eval_mean"])
    assert "is complete" in entry.pop("message") and entry.pop("eval_mean") == pytest.approx(mean)
    assert entry == {"severity": "INFO", "reason": "generations", "run": "run", "generation": 4}


@pytest.mark.parametrize(
    ("first", "outcome"),
    [
        ("stop.generations=2", "all generations done"),
        ("stop.steps=8", "all steps done"),
        ("stop.seconds=1e-6", "all seconds done"),
        ("stop.target=-1000", "solved, target -1000"),
    ],
)
def test_what_it_says_leads_further(first, outcome, fresh, run_mpies):
    command = "train", "config.yaml", first
    run_mpies(0, *command, code=0)
    (run,) = (fresh / "runs").iterdir()  # named after the config and the override
    made = len(read_digests(run))
    again = run_mpies(0, *command, code=0)
    assert f"is complete ({outcome}; generation {made}, " in again.stdout, again.stdout
    cure = again.stdout.partition("repeat the command with ")[2].partition(";")[0]
    words = cure.replace(" and another stop.target, or", "").split()
    assert words[0] == "--out" and (fresh / words[1]) == run
    assert f"continuing from generation {made}" in run_mpies(0, *command, *words, code=0).stderr
    assert len(read_digests(run)) > made


def test_the_next_seed_goes_on(fresh, run_mpies):
    command = "train", "config.yaml", "--out", "many", "--seeds"
    run_mpies(0, *command, "1..1", code=0)
    first, *_, last, took, following = run_mpies(2, *command, "1..2", code=0).stdout.splitlines()
    assert first.startswith("many-seed-1: is complete") and " --out many stop.generations=8;" in first
    assert last.startswith("many-seed-2: all generations done") and took.startswith("this job took ")
    assert following == "next: mpies evaluate many-seed-2, mpies play many-seed-2, mpies report many-seed-2"
    assert len(read_digests(fresh / "many-seed-2")) == 4


def test_a_run_is_complete_where_a_stop_rule_holds(folder):
    assert find(folder).reason == find(folder, "stop.generations=3").reason == "generations"
    assert find(folder, "stop.generations=5") is None
    assert find(folder, "stop.generations=5", "stop.steps=16").reason == "steps"
    assert find(folder, "stop.generations=5", "stop.seconds=1e-9").reason == "seconds"
    assert find(folder, "stop.generations=5", "stop.target=-1000") is None  # the evaluation was not confirmed
    assert find(folder, "evaluation.every=1", "checkpoint.keep=1").clock.generation == 4
    assert find(folder, "solver.population=6") is None
    config = load_config(folder / "config.yaml")
    assert "with --out 'my run' stop.generations=8;" in find(folder).describe(config, Path("my run"))
    finished = yaml.safe_load((folder / "run" / "finished.yaml").read_text())
    (folder / "run" / "finished.yaml").write_text(yaml.safe_dump(finished | {"reason": "solved"}))
    mean = find(folder).eval_mean
    assert find(folder, f"stop.target={mean}").reason == "solved"
    assert find(folder, f"stop.target={mean + 0.1}", "stop.generations=5") is None
    assert find(folder, "stop.target=null", "stop.generations=5") is None


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("finished.yaml", None),
        ("finished.yaml", "{["),
        ("finished.yaml", "generation: 3\nreason: generations\n"),
        ("metrics.csv", None),
        ("metrics.csv", "generation,seconds\n4,\n"),
        ("checkpoints/generation-00000004.h5", None),
        ("checkpoints/generation-00000005.h5", ""),
    ],
)
def test_where_its_files_are_not_as_they_were_left_the_run_is_opened(file, content, folder):
    path = folder / "run" / file
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    assert find(folder) is None
