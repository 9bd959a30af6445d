"""The real command line on one rank: train, stop, resume, evaluate, and the answers to mistakes."""

from mpies.runs import hdf5
from mpies.runs.checkpoint import list_checkpoints
from mpies.runs.checkpoint import newest_checkpoint
from mpies.runs.metrics import COLUMNS
from mpies.runs.metrics import read_metrics
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import yaml

from mpies.tools.replay import Replay

CARTPOLE = """
environment: {id: CartPole-v1, max_steps: 60}
policy: {hidden: [8]}
solver: {population: 16, sigma: 0.1, sigma_decay: 0.9}
noise: {size: 100000}
evaluation: {every: 2, episodes: 5}
checkpoint: {every: 2, share: 1}
stop: {generations: 10}
"""


def digests(run):
    return [row["digest"] for row in read_metrics(run)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A run of ten generations of CARTPOLE, and its config."""
    import subprocess
    import sys

    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "config.yaml").write_text(CARTPOLE)
    command = [sys.executable, "-m", "mpies", "train", "config.yaml", "--out", "run"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "run"


def test_a_run_leaves_what_the_design_promises(undisturbed):
    rows = read_metrics(undisturbed)
    assert [int(row["generation"]) for row in rows] == list(range(1, 11))
    assert tuple(rows[0])[: len(COLUMNS)] == COLUMNS or set(COLUMNS) <= set(rows[0])
    assert [bool(row["eval_mean"]) for row in rows] == [False, True] * 5
    assert [int(row["episodes"]) for row in rows] == list(range(16, 176, 16))
    assert len(set(digests(undisturbed))) == 10 and all(len(digest) == 64 for digest in digests(undisturbed))
    assert [path.name for path in list_checkpoints(undisturbed)] == [f"generation-{n:08d}.h5" for n in (10, 8, 6, 0)]
    assert yaml.safe_load((undisturbed / "config.yaml").read_text())["solver"]["population"] == 16
    assert yaml.safe_load((undisturbed / "finished.yaml").read_text())["reason"] == "generations"
    for name in ("best.h5", "policy.h5"):
        arrays, attributes = hdf5.read(undisturbed / name)
        assert arrays["parameters"].dtype == np.float32 and np.isfinite(arrays["parameters"]).all()
        assert yaml.safe_load(attributes["config"])["environment"]["id"] == "CartPole-v1"


def test_a_run_stopped_at_five_and_resumed_is_the_undisturbed_one(undisturbed, run_mpies, write_config, tmp_path):
    config = write_config(CARTPOLE)
    assert run_mpies(0, "train", config, "--out", "run", "stop.generations=5").code == 0
    assert digests(tmp_path / "run") == digests(undisturbed)[:5]
    ended = run_mpies(0, "train", config, "--out", "run", "--resume", "must")
    assert ended.code == 0, ended.stderr
    assert "going on from generation 5" in ended.stderr
    assert digests(tmp_path / "run") == digests(undisturbed)
    one, two = (read_metrics(run) for run in (tmp_path / "run", undisturbed))
    one[4] |= {"eval_mean": "", "eval_std": ""}  # it was evaluated where it stopped
    for column in ("steps", "episodes", "return_mean", "eval_mean", "eval_std", "sigma", "failures"):
        assert [row[column] for row in one] == [row[column] for row in two], column
    assert (tmp_path / "run" / "policy.h5").exists()


def test_generations_behind_the_newest_whole_checkpoint_are_made_again(undisturbed, run_mpies, write_config, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(undisturbed, run)
    newest = run / "checkpoints" / "generation-00000010.h5"
    newest.write_bytes(newest.read_bytes()[:1000])
    with open(run / "metrics.csv", "a") as file:
        file.write("11,3.5,1")
    ended = run_mpies(0, "train", write_config(CARTPOLE), "--out", "run", "stop.generations=11")
    assert ended.code == 0, ended.stderr
    assert "generation-00000010.h5: is damaged" in ended.stderr  # the ledger may bring back what lies behind 8
    assert digests(run)[:10] == digests(undisturbed)
    assert [int(row["generation"]) for row in read_metrics(run)] == list(range(1, 12))


def test_a_finished_run_is_not_trained_further(undisturbed, run_mpies, write_config, tmp_path):
    shutil.copytree(undisturbed, tmp_path / "run")
    ended = run_mpies(0, "train", write_config(CARTPOLE), "--out", "run")
    assert ended.code == 0, ended.stderr
    assert digests(tmp_path / "run") == digests(undisturbed)
    assert (tmp_path / "run" / "finished.yaml").exists()


def refused(ended, *words):
    """Whether a command ended as a user's mistake should: exit code 2, one line, these words."""
    assert ended.code == 2, (ended.code, ended.stderr[-2000:])
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1 and ended.stderr.startswith("mpies: "), ended.stderr[-2000:]
    for word in words:
        assert word in ended.stderr


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_of_another_config_is_refused_with_the_keys_that_differ(undisturbed, run_mpies, write_config, tmp_path):
    shutil.copytree(undisturbed, tmp_path / "run")
    config, before = write_config(CARTPOLE), snapshot(tmp_path)
    for resume in ("auto", "must"):
        changes = ["solver.sigma=0.2", "policy.hidden=[9]", "stop.generations=50"]
        ended = run_mpies(0, "train", config, "--out", "run", "--resume", resume, *changes)
        refused(ended, "solver.sigma: 0.1 there, 0.2 now", "policy.hidden: [8] there, [9] now", "take another --out")
        assert "stop.generations" not in ended.stderr
    refused(run_mpies(0, "train", config, "--out", "run", "--resume", "never"), "holds a run already")
    assert snapshot(tmp_path) == before


def test_a_run_from_before_a_key_was_there_goes_on(undisturbed, run_mpies, write_config, tmp_path):
    shutil.copytree(undisturbed, tmp_path / "run")
    before = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    del before["overlap"], before["noise"]["kind"], before["environment"]["hide"]
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(before))
    refused(run_mpies(0, "train", write_config(CARTPOLE), "--out", "run", "overlap=1"), "overlap: 0 there, 1 now")
    ended = run_mpies(0, "train", write_config(CARTPOLE), "--out", "run", "stop.generations=11")
    assert ended.code == 0, ended.stderr
    assert digests(tmp_path / "run")[:10] == digests(undisturbed) and len(digests(tmp_path / "run")) == 11


def test_resume_must_refuses_where_there_is_no_run(run_mpies, write_config, tmp_path):
    refused(run_mpies(0, "train", write_config(CARTPOLE), "--out", "run", "--resume", "must"), "holds no run to resume")
    assert not (tmp_path / "run").exists()


MISTAKES = [
    (["solver.population=101"], ["solver.population must be even (antithetic pairs), but is 101; use 100 or 102"]),
    (["noise.size=20"], ["noise.size", "58"]),  # parameters of the policy: 4 * 8 + 8 + 8 * 2 + 2
    (["environment.id=CartPool-v1"], ["CartPool-v1", "did you mean CartPole-v"]),
    (["solver.optimizer.learning_rate=.nan"], ["solver.optimizer.learning_rate must be a finite number, but is nan"]),
    (["environment.kwargs={colour: red}"], ["CartPole-v1", "colour"]),
    (["--out", "/proc/nowhere"], ["/proc/nowhere", "take another --out"]),
]


@pytest.mark.parametrize(("arguments", "words"), MISTAKES)
def test_a_mistake_ends_training_with_one_line_and_nothing_written(arguments, words, run_mpies, write_config, tmp_path):
    config, before = write_config(CARTPOLE), snapshot(tmp_path)
    refused(run_mpies(0, "train", config, *arguments), *words)
    assert snapshot(tmp_path) == before
    if "--out" not in arguments:
        refused(run_mpies(0, "check", config, *arguments), *words)


@pytest.mark.parametrize("text", ["", "- a list", "a: [", "enviroment: {id: CartPole-v1}"])
@pytest.mark.parametrize("command", ["check", "train", "verify"])
def test_a_bad_file_is_refused_by_every_command(command, text, run_mpies, write_config):
    config = write_config(text)
    refused(run_mpies(0, command, config), str(config))


def test_a_missing_file_is_refused(run_mpies):
    refused(run_mpies(0, "train", "absent.yaml"), "absent.yaml: cannot be read (No such file or directory)")
    refused(run_mpies(0, "evaluate", "absent"), "absent")


def test_a_foreign_package_called_solvers_is_refused_in_one_sentence(run_mpies, tmp_path, monkeypatch):
    (tmp_path / "solvers").mkdir()
    (tmp_path / "solvers" / "__init__.py").write_text("")
    refused(run_mpies(0, "check", "--keys"), "another package named 'solvers'", str(tmp_path), "PYTHONSAFEPATH=1")
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    assert run_mpies(0, "check", "--keys").code == 0


def test_check_prints_a_config_that_is_one_and_what_it_costs(run_mpies, write_config):
    ended = run_mpies(0, "check", write_config(CARTPOLE), "solver.sigma=0.5")
    assert ended.code == 0, ended.stderr
    resolved = yaml.safe_load(ended.stdout.split("\n\n")[0])
    assert resolved["solver"]["sigma"] == 0.5 and resolved["stop"]["generations"] == 10
    assert "58" in ended.stdout and "memory" in ended.stdout and "broadcast" in ended.stdout


def test_check_says_how_much_noise_a_generation_reads(run_mpies, write_config):
    config, sizes = write_config(CARTPOLE), ("policy.hidden=[20]", "solver.population=40")
    for noise, words in [("full", "11 kB, 142 normals"), ("low_rank", "5,440 B, 68 normals")]:
        ended = run_mpies(0, "check", config, f"noise.kind={noise}", *sizes)
        assert ended.code == 0 and f"noise of a generation   {words} a direction\n" in ended.stdout, ended.stderr


def test_the_schema_and_the_keys_name_every_key(run_mpies):
    schema, keys = run_mpies(0, "check", "--schema"), run_mpies(0, "check", "--keys")
    assert schema.code == keys.code == 0
    properties = json.loads(schema.stdout)["properties"]
    assert {"environment", "policy", "solver", "noise", "evaluation", "checkpoint", "stop"} <= properties.keys()
    for key in ("population", "learning_rate", "observation_clip", "max_steps", "momentum", "target"):
        assert f'"{key}"' in schema.stdout and f"`{key}`" in keys.stdout


def test_evaluate_plays_held_out_episodes_and_says_so_in_json(undisturbed, run_mpies):
    ended = run_mpies(0, "evaluate", undisturbed, "--episodes", 20, "--json")
    assert ended.code == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["episodes"] == len(found["returns"]) == 20
    assert found["mean"] == pytest.approx(np.mean(found["returns"]))
    assert found["interval"] == pytest.approx(1.96 * np.std(found["returns"], ddof=1) / np.sqrt(20))
    assert (found["min"], found["max"]) == (min(found["returns"]), max(found["returns"]))
    again, other = (
        json.loads(run_mpies(0, "evaluate", undisturbed / "best.h5", "--episodes", 20, "--json", *seed).stdout)
        for seed in ([], ["--seed", 99])
    )
    assert again["returns"] == found["returns"] != other["returns"]


def test_evaluate_refuses_what_is_no_policy(undisturbed, run_mpies, tmp_path):
    (tmp_path / "rubbish.h5").write_bytes(b"x" * 1000)
    (tmp_path / "empty").mkdir()
    refused(run_mpies(0, "evaluate", "rubbish.h5"), "rubbish.h5", "not a file of mpies")
    refused(run_mpies(0, "evaluate", "empty"), "holds no policy yet")
    refused(run_mpies(0, "evaluate", list_checkpoints(undisturbed)[0]), "is not a policy")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_stops_after_the_generation_with_code_75_and_the_run_goes_on(
    number, undisturbed, start_mpies, run_mpies, write_config, tmp_path
):
    config = write_config(CARTPOLE.replace("generations: 10", "generations: 1000000"))
    process = start_mpies(0, "train", config, "--out", "run", "--resume", "auto")
    while process.stdout.readline() and not (tmp_path / "run" / "metrics.csv").exists():
        pass
    os.kill(process.pid, number)
    assert process.wait(60) == 75
    made = len(digests(tmp_path / "run"))
    assert newest_checkpoint(tmp_path / "run", print)[1]["generation"] == made
    assert not (tmp_path / "run" / "finished.yaml").exists()
    ended = run_mpies(0, "train", config, "--out", "run", f"stop.generations={max(made + 1, 10)}")
    assert ended.code == 0, ended.stderr
    assert digests(tmp_path / "run")[:10] == digests(undisturbed)


def test_a_killed_run_goes_on_bit_for_bit(undisturbed, start_mpies, run_mpies, write_config, tmp_path):
    config = write_config(CARTPOLE.replace("generations: 10", "generations: 1000000"))
    process = start_mpies(0, "train", config, "--out", "run")
    while len(digests(tmp_path / "run")) < 5:
        process.stdout.readline()
    process.kill()
    process.wait()
    ended = run_mpies(0, "train", config, "--out", "run", f"stop.generations={len(digests(tmp_path / 'run')) + 5}")
    assert ended.code == 0, ended.stderr
    assert digests(tmp_path / "run")[:10] == digests(undisturbed)


FAULTY = """
environment: {{id: "faulty:Faulty-v0", kwargs: {{share: {share}}}}}
policy: {{hidden: []}}
solver: {{population: 16}}
noise: {{size: 1000}}
stop: {{generations: 3}}
evaluation: {{every: 0, episodes: 3}}
"""
MODULE = """
import gymnasium, numpy as np
from gymnasium import spaces

class Faulty(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)
    def __init__(self, share): self.share = share
    def reset(self, seed=None, options=None):
        self.bad = np.random.default_rng(seed).random() < self.share
        return np.zeros(2, np.float32), {}
    def step(self, action):
        if self.bad: raise RuntimeError("out of balance")
        return np.ones(2, np.float32), float(action), True, False, {}

gymnasium.register("Faulty-v0", Faulty)
"""


@pytest.mark.parametrize(("share", "code"), [(0.3, 0), (1.0, 1)])
def test_failed_members_are_counted_and_named_and_too_many_end_the_run(share, code, run_mpies, write_config, tmp_path):
    (tmp_path / "faulty.py").write_text(MODULE)
    ended = run_mpies(0, "train", write_config(FAULTY.format(share=share)), "--out", "run")
    assert ended.code == code, ended.stderr
    rows = read_metrics(tmp_path / "run")
    assert sum(int(row["failures"]) for row in rows) == ended.stderr.count("RuntimeError: out of balance") > 0
    assert "Traceback" not in ended.stderr
    if code:
        assert "stop.max_failures" in ended.stderr and len(rows) == 1
        assert newest_checkpoint(tmp_path / "run", print)[1]["generation"] == 1
        assert not (tmp_path / "run" / "finished.yaml").exists()


def test_a_generation_whose_evaluation_is_broken_off_is_made_again(tmp_path):
    """A signal's grace that ends in an evaluation leaves no hole in metrics.csv or the ledger."""
    (tmp_path / "c.yaml").write_text(
        "environment: {id: CartPole-v1}\npolicy: {hidden: []}\nsolver: {population: 4}\nnoise: {size: 1000}\n"
        "evaluation: {every: 1, episodes: 2_000_000}\nstop: {generations: 2, grace: 0.1}\n"
    )
    command = [sys.executable, "-m", "mpies", "train", str(tmp_path / "c.yaml"), "--out", str(tmp_path / "run")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        while not list(tmp_path.glob("run/checkpoints/*0.h5")):
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(1)
        process.send_signal(signal.SIGUSR1)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 75 and "after generation 0;" in errors
    done = subprocess.run([*command, "evaluation.episodes=5"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [row["generation"] for row in read_metrics(tmp_path / "run")] == ["1", "2"]
    assert all(row["eval_mean"] for row in read_metrics(tmp_path / "run"))
    assert Replay(tmp_path / "run", 1).solver.generation == 1
