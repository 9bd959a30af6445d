"""Failed episodes of evaluations, and the messages of all ranks as one line each."""

import json
import logging

import numpy as np
import pytest

from mpies.comm import connect
from mpies.comm.serial import Serial
from mpies.rollouts.queue import FailureGroup, gather_failures
from mpies.runs.formats.metrics import read_metrics
from mpies.runs.snapshot import Evaluation
from mpies.training.control import TrainingStopped
from mpies.training.evaluation.evaluator import MOST_LINES
from mpies.training.evaluation.generation import QueueKey
from tests.support import on_one_and_three_ranks
from tests.training.evaluation.test_evaluator import Rig


@on_one_and_three_ranks
def test_equal_messages_of_all_ranks_are_one_group(ranks):
    comm = connect()
    own = {10 + comm.rank: "no licence\nleft", 20 + comm.rank: "no licence\nleft"}
    if comm.rank == comm.size - 1:
        own[3] = f"rank {comm.rank} ü"
    groups = gather_failures(comm, own)
    if not comm.is_root:
        assert groups == []
        return
    assert groups == [
        FailureGroup("no licence\nleft", 2 * ranks, 10, list(range(ranks))),
        FailureGroup(f"rank {ranks - 1} ü", 1, 3, [ranks - 1]),
    ]


def test_no_failures_are_no_groups():
    assert gather_failures(Serial(), {}) == []


def fail(rig, share):
    """Let this share of the episodes that `rig` plays fail."""
    player, play = rig.task.player, rig.task.player.play

    def play_and_fail(queues, *rest):
        play(queues, *rest)
        for queue in queues:
            for rollout in range(round(share * len(queue.batch))):
                queue.results["total"][rollout] = np.nan
                queue.failures[rollout] = "no licence"

    player.play = play_and_fail


def rig_of(max_failures=0.5, **stop):
    return Rig(Serial(), evaluation={"episodes": 10}, stop={"max_failures": max_failures, **stop})


@pytest.mark.parametrize(("solver", "batches"), [({"timesteps_per_batch": 10**6}, 16), ({"episodes_per_batch": 40}, 5)])
def test_a_generation_in_which_all_fail_ends_before_it_has_its_steps(solver, batches):
    rig = Rig(Serial(), solver={"kind": "openai_es", "population": 8, **solver})
    fail(rig, 1.0)
    population = rig.evaluate()
    assert len(population.results.returns) == 8 * batches and np.isnan(population.results.returns).all()
    assert rig.control.failed_share == 1


def test_some_episodes_of_an_evaluation_may_fail():
    whole, rig = rig_of().evaluate_mean(), rig_of()
    fail(rig, 0.3)
    part = rig.evaluate_mean()
    assert (whole.failures, part.failures) == (0, 3)
    assert part.returns.tolist() == whole.returns[3:].tolist() and part.lengths.tolist() == whole.lengths[3:].tolist()
    assert part.mean == np.mean(whole.returns[3:])


def test_an_evaluation_with_failed_episodes_is_neither_the_best_nor_solves(caplog):
    rig = rig_of(target=1)
    assert rig.evaluate_mean().confirmed
    fail(rig, 0.1)
    with caplog.at_level(logging.WARNING):
        part = rig.evaluate_mean()
    assert not part.confirmed and len(part.returns) == 9  # nor is it worth a second evaluation
    assert not rig.updater.learner.update_best(part)
    assert rig.updater.learner.update_best(Evaluation(part.returns, part.lengths))
    assert [message.split(" failed: ")[1] for message in caplog.messages] == ["no licence; it is left out of the mean"]


@pytest.mark.parametrize(
    ("share", "max_failures", "is_result"), [(0.6, 0.5, False), (0.1, 0.5, True), (1.0, 0.9, False)]
)
def test_too_many_failed_episodes_are_a_failure_of_the_run(share, max_failures, is_result):
    rig = rig_of(max_failures)
    fail(rig, share)
    mean = rig.updater.broadcast_mean()
    with pytest.raises(
        TrainingStopped, match=rf"^{share * 10:.0f} of the 10 episodes .* failed \(no licence\), so the"
    ):
        rig.evaluator.evaluate_mean(mean, 1, is_result)


def test_an_evaluation_that_all_fail_and_that_may_fail_has_no_mean():
    rig = rig_of(1.0)
    fail(rig, 1.0)
    assert rig.evaluate_mean() is None


def test_a_function_may_be_undefined_at_the_mean_except_at_the_end(monkeypatch):
    rig = Rig(Serial(), environment={"id": "function:sphere", "dimension": 3}, policy={"kind": "none"})
    monkeypatch.setattr(type(rig.task.env), "value", lambda self, x: 1 / 0)
    assert rig.evaluate_mean() is None
    with pytest.raises(TrainingStopped, match="ZeroDivisionError"):
        rig.evaluator.evaluate_mean(rig.updater.broadcast_mean(), 1, True)


def test_failures_with_many_reasons_are_a_few_lines(caplog):
    rig = Rig(Serial())
    queue = rig.evaluator._open_training(rig.updater.next_parts()[0][0], 0, 0)
    rig.evaluator.failures = [FailureGroup(f"reason {number}", 1, number, [0]) for number in range(9)]
    with caplog.at_level(logging.WARNING):
        rig.evaluator._log_failures(queue.batch.seeds, QueueKey(0, "training", 0))
    assert len(caplog.messages) == MOST_LINES + 1
    assert caplog.messages[-1] == "CartPole-v1: 4 more episodes failed, for 4 other reasons"


LICENSED = """
import gymnasium, numpy as np, os
from gymnasium.spaces import Box, Discrete

class Licensed(gymnasium.Env):
    observation_space, action_space, held = Box(-1, 1, (2,), np.float32), Discrete(2), False
    def __init__(self):
        if Licensed.held: raise RuntimeError("no licence left")
        Licensed.held = True
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.random(2).astype(np.float32), {}
    def step(self, action):
        return self.np_random.random(2).astype(np.float32), float(action), True, False, {}
    def close(self): Licensed.held = False
"""
CONFIG = """
environment: {id: "own.py:Licensed"}
policy: {hidden: []}
solver: {population: 8}
noise: {size: 10000}
evaluation: {every: 2, episodes: 8}
stop: {generations: 4}
"""


@pytest.mark.parametrize("ranks", [0, 2])
def test_a_run_whose_last_evaluation_fails_ends_with_code_1_and_can_be_mended(ranks, run_mpies, write_config, tmp_path):
    (tmp_path / "own.py").write_text(LICENSED)
    arguments = "train", write_config(CONFIG), "--out", "run"
    outcome = run_mpies(ranks, *arguments)
    assert outcome.code == 1
    warnings = [line for line in outcome.stderr.splitlines() if line.startswith("WARNING")]
    errors = [line for line in outcome.stderr.splitlines() if line.startswith("ERROR")]
    assert len(warnings) == 6 and all("no licence left" in line for line in warnings)  # 4 generations, 2 evaluations
    assert len(errors) == 1 and "that evaluate generation 4 failed" in errors[0] and "no licence left" in errors[0]
    assert errors[0] in (tmp_path / "run" / "log.txt").read_text()
    rows = read_metrics(tmp_path / "run")
    assert [row["generation"] for row in rows] == ["1", "2", "3"]  # the last one is played again
    assert 0 < int(rows[1]["eval_episodes"]) < 8 and not (tmp_path / "run" / "best.h5").exists()
    assert not (tmp_path / "run" / "finished.yaml").exists()
    again = run_mpies(ranks, *arguments)
    assert again.code == 1 and "continuing from generation 3" in again.stderr
    run_mpies(ranks, *arguments, "environment.instances=1", code=0)
    rows = read_metrics(tmp_path / "run")
    assert len(rows) == 4 and rows[-1]["eval_episodes"] == "8" and (tmp_path / "run" / "best.h5").exists()


def test_json_of_an_evaluation_with_failures_holds_no_nan(run_mpies, write_config, tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(LICENSED)
    assert run_mpies(0, "train", write_config(CONFIG), "--out", "run", "environment.instances=1").code == 0
    own = tmp_path / "own.py"
    own.write_text(own.read_text().replace("float(action)", "float('nan') if action else 0.0"))
    monkeypatch.setenv("MPIES_TRUST", "1")  # the code is no longer what was trained
    outcome = run_mpies(0, "evaluate", "run", "--episodes", 30, "--json")
    result = json.loads(outcome.stdout, parse_constant=pytest.fail)
    failed = result["returns"].count(None)
    assert result["failures"] == failed and outcome.code == (failed > 0)


@pytest.mark.parametrize("ranks", [0, 2])
def test_a_mean_that_is_not_finite_ends_training_before_it_is_recorded(ranks, run_mpies, write_config):
    config = write_config("{environment: {id: LQR-v0}, policy: {hidden: []}, noise: {size: 20_000}}")
    few = ["solver.population=8", "evaluation.episodes=3", "solver.optimizer.learning_rate=1e38", "--out", "run"]
    outcome = run_mpies(ranks, "train", config, *few)
    assert outcome.code == 1 and "the mean after generation 1 is not finite" in outcome.stderr
    assert "lower learning rate or sigma of the solver" in outcome.stderr
    assert "Traceback" not in outcome.stderr
