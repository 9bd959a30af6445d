"""Runs of the real command line on one rank: trained, stopped, resumed, damaged, failed."""

import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import yaml

from mpies.comm.serial import Serial
from mpies.config.loading import validate_config
from mpies.runs.directory import open_run
from mpies.runs.formats import hdf5, ledger
from mpies.runs.formats.checkpoint import list_checkpoints, newest_checkpoint
from mpies.runs.formats.metrics import COLUMNS, read_digests, read_metrics
from mpies.training.control import STOP
from mpies.training.replay import Replay
from mpies.training.trainer import make_trainer
from tests.support import CARTPOLE, FAULTY, FAULTY_MODULE, assert_refused, read_files


@pytest.fixture
def undisturbed(trained):
    """A run of ten generations of CARTPOLE."""
    return trained(CARTPOLE)


def test_a_run_leaves_the_files_and_columns_that_users_rely_on(undisturbed):
    rows, digests = read_metrics(undisturbed), read_digests(undisturbed)
    assert [int(row["generation"]) for row in rows] == list(range(1, 11))
    assert list(rows[0])[: len(COLUMNS)] == COLUMNS and "sigma" in rows[0]
    assert [bool(row["eval_mean"]) for row in rows] == [False, True] * 5
    assert [int(row["episodes"]) for row in rows] == list(range(16, 176, 16))
    assert len(set(digests)) == 10 and all(len(digest) == 64 for digest in digests)
    assert [path.name for path in list_checkpoints(undisturbed)] == [f"generation-{n:08d}.h5" for n in (10, 8, 6, 0)]
    assert yaml.safe_load((undisturbed / "config.yaml").read_text())["solver"]["population"] == 16
    assert yaml.safe_load((undisturbed / "finished.yaml").read_text())["reason"] == "generations"
    for name in ("best.h5", "policy.h5"):
        arrays, attributes = hdf5.read(undisturbed / name)
        assert arrays["parameters"].dtype == np.float32 and np.isfinite(arrays["parameters"]).all()
        assert yaml.safe_load(attributes["config"])["environment"]["id"] == "CartPole-v1"


def test_the_best_policy_is_that_of_the_highest_evaluation(undisturbed):
    means = {int(row["generation"]): float(row["eval_mean"]) for row in read_metrics(undisturbed) if row["eval_mean"]}
    best = max(means, key=means.get)
    attributes = hdf5.read(undisturbed / "best.h5")[1]
    assert attributes["generation"] == best and attributes["eval_mean"] == pytest.approx(means[best])
    assert attributes["eval_episodes"] == 5
    arrays, attributes = hdf5.read(list_checkpoints(undisturbed)[0])
    assert attributes["generation"] == 10 and arrays["best"] == pytest.approx(means[best])


def test_a_run_stopped_at_five_and_resumed_is_the_undisturbed_one(undisturbed, run_mpies, write_config, tmp_path):
    config, run = write_config(CARTPOLE), tmp_path / "run"
    assert run_mpies(0, "train", config, "--out", "run", "stop.generations=5").code == 0
    assert read_digests(run) == read_digests(undisturbed)[:5]
    outcome = run_mpies(0, "train", config, "--out", "run", "--resume", "must", code=0)
    assert "continuing from generation 5" in outcome.stderr
    assert read_digests(run) == read_digests(undisturbed)
    resumed, expected = read_metrics(run), read_metrics(undisturbed)
    assert resumed[4]["eval_mean"]  # it was evaluated where it stopped
    resumed[4] |= {"eval_mean": "", "eval_std": ""}
    for column in ("steps", "episodes", "return_mean", "eval_mean", "eval_std", "sigma", "failures"):
        assert [row[column] for row in resumed] == [row[column] for row in expected], column
    assert (run / "policy.h5").exists()


def test_generations_behind_the_newest_undamaged_checkpoint_are_recomputed(
    undisturbed, run_mpies, write_config, tmp_path
):
    run = shutil.copytree(undisturbed, tmp_path / "run")
    newest = run / "checkpoints" / "generation-00000010.h5"
    newest.write_bytes(newest.read_bytes()[:1000])
    with open(run / "metrics.csv", "a") as file:
        file.write("11,3.5,1")
    outcome = run_mpies(0, "train", write_config(CARTPOLE), "--out", "run", "stop.generations=11", code=0)
    assert "generation-00000010.h5: is damaged" in outcome.stderr
    assert "continuing from generation 10" in outcome.stderr  # 9 and 10 come from the ledger
    assert read_digests(run)[:10] == read_digests(undisturbed)
    assert [int(row["generation"]) for row in read_metrics(run)] == list(range(1, 12))


def test_where_the_ledger_gives_another_state_training_goes_on_from_the_checkpoint(
    undisturbed, run_mpies, write_config, tmp_path
):
    run = shutil.copytree(undisturbed, tmp_path / "run")
    (run / "checkpoints" / "generation-00000010.h5").unlink()
    records = list(ledger.read_records(run / "ledger.bin"))
    records[8] |= {"returns": records[8]["returns"][::-1]}
    (run / "ledger.bin").write_bytes(b"".join(map(ledger.pack_record, records)))
    outcome = run_mpies(0, "train", write_config(CARTPOLE), "--out", "run", code=0)
    assert "gives another state than recorded; going back to the checkpoint" in outcome.stderr
    assert "continuing from generation 8" in outcome.stderr
    assert read_digests(run) == read_digests(undisturbed)


def test_a_run_that_reaches_its_target_is_solved_after_100_fresh_episodes(run_mpies, write_config, tmp_path):
    outcome = run_mpies(0, "train", write_config(CARTPOLE), "--out", "run", "stop.target=5")
    assert outcome.code == 0 and "solved: " in outcome.stderr + outcome.stdout
    rows = read_metrics(tmp_path / "run")
    assert [row["generation"] for row in rows] == ["1", "2"]
    assert rows[1]["eval_episodes"] == "105" and float(rows[1]["eval_mean"]) >= 5
    assert yaml.safe_load((tmp_path / "run" / "finished.yaml").read_text())["reason"] == "solved"


def test_a_run_whose_members_share_their_noise_is_warned_of(run_mpies, write_config):
    outcome = run_mpies(0, "train", write_config(CARTPOLE), "--out", "run", "noise.size=60", "stop.generations=1")
    assert outcome.code == 0, outcome.stderr
    assert "members share their noise: it starts in one place of a table of 60 normals" in outcome.stderr


UNSEEDED = """
import gymnasium
import numpy as np


class {name}(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 5
        return {draw}, {{}}

    def step(self, action):
        self.left -= 1
        return {draw}, 1.0, False, self.left == 0, {{}}
"""


@pytest.mark.parametrize("hidden", ["[]", "[1]"])
def test_an_environment_that_ignores_its_seed_is_warned_of(hidden, run_mpies, write_config, tmp_path):
    classes = {"Unseeded": "np.random.randn(2)", "Seeded": "self.np_random.standard_normal(2)"}
    for name, draw in classes.items():
        (tmp_path / f"{name}.py").write_text(UNSEEDED.format(name=name, draw=draw))
        settings = f"environment: {{id: '{name}.py:{name}', hide: {hidden}}}\nstop: {{generations: 1}}\n"
        outcome = run_mpies(0, "train", write_config(settings), "--out", name, "solver.population=4", code=0)
        said = f"{name}.py:{name}: two episodes with the same seed differ" in outcome.stderr
        assert said == (name == "Unseeded"), outcome.stderr


@pytest.mark.parametrize("reason", ["signal", "failures"])
def test_a_run_that_is_interrupted_is_not_evaluated(reason, tmp_path):
    values = {"environment": {"id": "function:sphere", "dimension": 3}, "solver": {"population": 4}}
    config = validate_config(values | {"noise": {"size": 100}, "stop": {"max_failures": 0}}, "x")
    run = open_run(tmp_path / "run", config)
    trainer = make_trainer(config, Serial(), run)
    play = trainer.task.player.play

    def play_and_interrupt(queues, *rest):
        play(queues, *rest)
        if reason == "failures":
            queues[0].results["total"][0] = np.nan
        else:
            trainer.control.agree(np.array([STOP]))

    trainer.task.player.play = play_and_interrupt
    assert trainer.train() == reason
    run.flush()
    run.close()
    assert [row["eval_mean"] for row in read_metrics(run.path)] == [""]


@pytest.mark.parametrize(("rule", "generations"), [("steps=300", None), ("seconds=0.000001", 1)])
def test_a_run_ends_at_the_first_rule_that_is_reached_and_is_evaluated_there(
    rule, generations, run_mpies, write_config, tmp_path
):
    assert run_mpies(0, "train", write_config(CARTPOLE), "--out", "run", f"stop.{rule}", "evaluation.every=0").code == 0
    rows = read_metrics(tmp_path / "run")
    if generations is None:
        assert int(rows[-1]["steps"]) >= 300 > int(rows[-2]["steps"])
    else:
        assert len(rows) == generations
    assert [bool(row["eval_mean"]) for row in rows] == [False] * (len(rows) - 1) + [True]
    assert yaml.safe_load((tmp_path / "run" / "finished.yaml").read_text())["reason"] == rule.split("=")[0]


def test_a_run_of_another_config_is_refused_with_the_keys_that_differ(undisturbed, run_mpies, write_config, tmp_path):
    shutil.copytree(undisturbed, tmp_path / "run")
    config, before = write_config(CARTPOLE), read_files(tmp_path)
    changes = ["solver.sigma=0.2", "policy.hidden=[9]", "stop.generations=50"]
    words = "solver.sigma: 0.1 there, 0.2 now", "policy.hidden: [8] there, [9] now", "choose another --out"
    for resume in ("auto", "must"):
        outcome = run_mpies(0, "train", config, "--out", "run", "--resume", resume, *changes)
        assert_refused(outcome, *words)
        assert "stop.generations" not in outcome.stderr
    assert_refused(run_mpies(0, "train", config, "--out", "run", "--resume", "never"), "contains a run already")
    assert read_files(tmp_path) == before


def test_a_run_from_before_some_keys_were_added_goes_on(undisturbed, run_mpies, write_config, tmp_path):
    run = shutil.copytree(undisturbed, tmp_path / "run")
    before = yaml.safe_load((run / "config.yaml").read_text())
    del before["overlap"], before["noise"]["kind"], before["environment"]["hide"]
    (run / "config.yaml").write_text(yaml.safe_dump(before))
    config = write_config(CARTPOLE)
    assert_refused(run_mpies(0, "train", config, "--out", "run", "overlap=1"), "overlap: 0.0 there, 1.0 now")
    run_mpies(0, "train", config, "--out", "run", "stop.generations=11", code=0)
    assert read_digests(run)[:10] == read_digests(undisturbed) and len(read_digests(run)) == 11


def test_resume_must_refuses_where_there_is_no_run(run_mpies, write_config, tmp_path):
    outcome = run_mpies(0, "train", write_config(CARTPOLE), "--out", "run", "--resume", "must")
    assert_refused(outcome, "contains no run to resume")
    assert not (tmp_path / "run").exists()


def test_a_killed_run_goes_on_bit_for_bit(undisturbed, start_mpies, run_mpies, write_config, tmp_path):
    config, run = write_config(CARTPOLE.replace("generations: 10", "generations: 1000000")), tmp_path / "run"
    process = start_mpies(0, "train", config, "--out", "run")
    while len(read_digests(run)) < 5:
        process.stdout.readline()
    process.kill()
    process.wait()
    stop = max(10, len(read_digests(run)) + 5)
    run_mpies(0, "train", config, "--out", "run", f"stop.generations={stop}", code=0)
    assert read_digests(run)[:10] == read_digests(undisturbed) and len(read_digests(run)) == stop


@pytest.mark.parametrize(("share", "code"), [(0.3, 0), (0.75, 1)])
def test_failed_members_are_counted_and_named_and_too_many_end_the_run(share, code, run_mpies, write_config, tmp_path):
    (tmp_path / "faulty.py").write_text(FAULTY_MODULE)
    outcome = run_mpies(0, "train", write_config(FAULTY.format(share=share)), "--out", "run")
    assert outcome.code == code, outcome.stderr
    rows = read_metrics(tmp_path / "run")
    lines = [line for line in outcome.stderr.splitlines() if line.startswith("WARNING")]
    more = [int(line.partition(" and ")[2].split()[0]) if " more failed" in line else 0 for line in lines]
    assert all("RuntimeError: out of balance" in line for line in lines)
    assert sum(int(row["failures"]) for row in rows) == len(lines) + sum(more) > len(rows) == len(lines)
    assert "Traceback" not in outcome.stderr
    if code:
        assert "stop.max_failures" in outcome.stderr and len(rows) == 1
        assert newest_checkpoint(tmp_path / "run", print)[1]["generation"] == 1
        assert not (tmp_path / "run" / "finished.yaml").exists()


BROKEN = """
import gymnasium, numpy, itertools
from gymnasium.spaces import Box
made = itertools.count()
class Broken(gymnasium.Env):
    observation_space = action_space = Box(-1.0, 1.0, (1,), numpy.float32)
    def __init__(self):
        if next(made) % 7 == 6:
            raise RuntimeError("no licence left")
    def reset(self, seed=None, options=None):
        self.seed = seed
        return numpy.zeros(1, numpy.float32), {}
    def step(self, action):
        if self.seed % 5 == 1:
            raise ZeroDivisionError("in step")
        reward = float("nan") if self.seed % 5 == 2 else 1.0
        return numpy.zeros(1 + (self.seed % 5 == 3), numpy.float32), reward, True, False, {}
"""


def test_every_failure_is_named_with_its_member_and_the_run_goes_on(run_mpies, tmp_path, write_config):
    (tmp_path / "broken.py").write_text(BROKEN)
    config = write_config(
        "environment: {id: 'broken.py:Broken', rebuild: always}\npolicy: {hidden: []}\nsolver: {population: 20}\n"
        "noise: {size: 20000}\nevaluation: {every: 0, episodes: 1}\nstop: {generations: 3, max_failures: 1.0}\n"
    )
    outcome = run_mpies(2, "train", config, "--out", "run")
    assert outcome.code in (0, 1), outcome.stderr  # 1 where the only episode of the evaluation fails
    for message in (
        "ZeroDivisionError: in step",
        "return nan",
        "ValueError: observation has 2 numbers, but 1 were expected",
        "broken.py:Broken cannot be built: RuntimeError: no licence left",
    ):
        assert any(
            "broken.py:Broken, generation" in line and ", member " in line and message in line
            for line in outcome.stderr.splitlines()
        ), message
    assert len(read_metrics(tmp_path / "run")) == 3 - outcome.code


def test_a_generation_whose_evaluation_is_abandoned_is_trained_again(tmp_path):
    """A signal's grace that ends in an evaluation leaves no gap in metrics.csv or the ledger."""
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
        _, errors = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 75 and "after generation 0;" in errors
    done = subprocess.run([*command, "evaluation.episodes=5"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [row["generation"] for row in read_metrics(tmp_path / "run")] == ["1", "2"]
    assert all(row["eval_mean"] for row in read_metrics(tmp_path / "run"))
    assert Replay(tmp_path / "run", 1).generation == 1


@pytest.mark.parametrize("steps", ["1.35E+11", "damaged", ""])
def test_a_run_whose_newest_row_has_other_numbers_goes_on(steps, undisturbed, run_mpies, write_config, tmp_path):
    """As a spreadsheet writes large ones."""
    shutil.copytree(undisturbed, tmp_path / "run")
    *lines, newest = (tmp_path / "run" / "metrics.csv").read_text().splitlines(keepends=True)
    cells = newest.split(",")
    cells[lines[0].split(",").index("steps")] = steps
    (tmp_path / "run" / "metrics.csv").write_text("".join([*lines, ",".join(cells)]))
    outcome = run_mpies(0, "train", write_config(CARTPOLE), "--out", "run", "stop.generations=11", code=0)
    assert "continuing from generation 10" in outcome.stderr


def test_a_signal_makes_no_evaluation_the_last_one_in_which_nothing_may_fail(tmp_path):
    (tmp_path / "hole.py").write_text(
        "def value(x):\n    return -float(x @ x) if abs(x).max() > 0.001 else float('nan')"
    )
    values = {
        "environment": {"id": f"{tmp_path}/hole.py:value", "dimension": 3},
        "solver": {"population": 4, "sigma": 1.0, "optimizer": {"kind": "adam", "learning_rate": 1e-6}},
    }
    config = validate_config(values | {"noise": {"size": 100}, "evaluation": {"every": 1}}, "x")
    run = open_run(tmp_path / "run", config)
    trainer = make_trainer(config, Serial(), run)
    trainer.on_generation = lambda snapshot: snapshot.generation == 3
    evaluate = trainer.evaluator.evaluate

    def evaluate_and_interrupt(parts, generation, prefetch):
        if generation == 1:
            trainer.control.agree(np.array([STOP]))
        return evaluate(parts, generation, prefetch)

    trainer.evaluator.evaluate = evaluate_and_interrupt
    assert trainer.train() == "signal" and not trainer.failure
    run.flush()
    run.close()
    assert [(row["generation"], row["eval_mean"]) for row in read_metrics(run.path)] == [("1", ""), ("2", "")]
