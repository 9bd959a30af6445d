"""Failed episodes of evaluations and of training, a line for each reason."""

import json
import logging

import numpy as np
import pytest

from mpies.comm.serial import Serial
from mpies.envs.base import SEED_BITS
from mpies.rollouts.queue import FailureGroup
from mpies.runs.formats.metrics import read_metrics
from mpies.runs.snapshot import Evaluation
from mpies.training.control import TrainingStopped
from mpies.training.evaluation.evaluator import MOST_LINES
from mpies.training.evaluation.generation import QueueKey
from tests.support import invoke
from tests.training.evaluation.test_evaluator import Rig


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


def test_some_episodes_of_an_evaluation_may_fail_but_then_it_is_neither_the_best_nor_solves(caplog):
    whole, rig = rig_of().evaluate_mean(), rig_of(target=1)
    assert rig.evaluate_mean().confirmed
    fail(rig, 0.3)
    with caplog.at_level(logging.WARNING):
        part = rig.evaluate_mean()
    assert (whole.failures, part.failures) == (0, 3)
    assert part.returns.tolist() == whole.returns[3:].tolist() and part.lengths.tolist() == whole.lengths[3:].tolist()
    assert part.mean == np.mean(whole.returns[3:])
    assert not part.confirmed  # nor is it worth a second evaluation
    assert not rig.updater.learner.update_best(part)
    assert rig.updater.learner.update_best(Evaluation(part.returns, part.lengths))
    (message,) = caplog.messages
    assert message.endswith(" and 2 more failed: no licence; they are left out of the mean")


@pytest.mark.parametrize(("share", "allowed", "is_result"), [(0.6, 0.5, False), (0.1, 0.5, True), (1.0, 0.9, False)])
def test_too_many_failed_episodes_are_a_failure_of_the_run(share, allowed, is_result):
    rig = rig_of(allowed)
    fail(rig, share)
    words = rf"^{share * 10:.0f} of the 10 episodes .* failed \(no licence\), so the"
    with pytest.raises(TrainingStopped, match=words):
        rig.evaluator.evaluate_mean(rig.updater.broadcast_mean(), 1, is_result)


def test_where_all_may_fail_there_is_no_mean_and_a_batch_ends_before_it_has_its_steps():
    rig = rig_of(1.0)
    fail(rig, 1.0)
    assert rig.evaluate_mean() is None
    for solver, batches in (({"timesteps_per_batch": 10**6}, 16), ({"episodes_per_batch": 40}, 5)):
        rig = Rig(Serial(), solver={"kind": "openai_es", "population": 8, **solver})
        fail(rig, 1.0)
        population = rig.evaluate()
        assert len(population.results.returns) == 8 * batches and np.isnan(population.results.returns).all()
        assert rig.control.failed_share == 1


def test_a_function_is_evaluated_once_and_may_be_undefined_at_the_mean_except_at_the_end(monkeypatch):
    rig = Rig(Serial(), environment={"id": "function:sphere", "dimension": 3}, policy={"kind": "none"})
    assert rig.evaluate_mean().returns.tolist() == [0.0]
    monkeypatch.setattr(type(rig.task.env), "value", lambda self, x: 1 / 0)
    assert rig.evaluate_mean() is None
    with pytest.raises(TrainingStopped, match="ZeroDivisionError"):
        rig.evaluator.evaluate_mean(rig.updater.broadcast_mean(), 1, True)


def test_failures_are_logged_with_generation_member_episode_and_seed_in_a_few_lines(caplog):
    rig = Rig(Serial(), solver={"population": 4, "episodes": 2})
    queue, key = rig.evaluator._open_training(rig.updater.next_parts()[0][0], 6, 1), QueueKey(6, "training", 1)
    seeds, seed = queue.batch.seeds, queue.batch.seeds[5]
    rig.evaluator.failures = [FailureGroup("out of balance", 1, 5, [0])]
    with caplog.at_level(logging.WARNING):
        rig.evaluator._log_failures(seeds, key)
        rig.evaluator._log_failures(seeds, QueueKey(7, "evaluation", 0))
        rig.evaluator._log_failures(seeds + (2 << SEED_BITS), key)
    training, evaluation, numbered = caplog.messages
    where = f"CartPole-v1, generation 7, member 6, episode 1 (environment seed {seed})"
    assert training == f"{where} failed: out of balance; it ranks worst"
    assert "generation 7, evaluation, episode 5 " in evaluation and evaluation.endswith("; it is left out of the mean")
    assert f"(environment seed {seed}, its episode 3) failed" in numbered
    caplog.clear()
    rig.evaluator.failures = [FailureGroup(f"reason {number}", 1, number % 8, [0]) for number in range(9)]
    with caplog.at_level(logging.WARNING):
        rig.evaluator._log_failures(seeds, key)
    assert len(caplog.messages) == MOST_LINES + 1
    assert caplog.messages[-1] == "CartPole-v1: 4 more episodes failed, for 4 other reasons"


LICENSED = """
from tests.envs.misbehaving import Good
class Licensed(Good):
    held = False
    def __init__(self):
        if Licensed.held: raise RuntimeError("no licence left")
        Licensed.held = True
    def close(self): Licensed.held = False
"""
SMALL = "policy.hidden=[]", "solver.population=8", "noise.size=10000"
TRAIN = "train", "own.py:Licensed", *SMALL, "evaluation={every: 2, episodes: 8}", "--out", "run"


def test_a_run_whose_last_evaluation_fails_ends_with_code_1_and_can_be_mended(run_mpies, tmp_path):
    (tmp_path / "own.py").write_text(LICENSED)
    arguments, run = (*TRAIN, "stop.generations=4"), tmp_path / "run"
    outcome = run_mpies(2, *arguments, code=1)
    warnings = [line for line in outcome.stderr.splitlines() if line.startswith("WARNING")]
    (error,) = [line for line in outcome.stderr.splitlines() if line.startswith("ERROR")]
    assert len(warnings) == 6 and all("no licence left" in line for line in warnings)  # 4 generations, 2 evaluations
    assert "that evaluate generation 4 failed" in error and "no licence left" in error
    assert error in (run / "log.txt").read_text()
    rows = read_metrics(run)
    assert [row["generation"] for row in rows] == ["1", "2", "3"]  # the last one is played again
    assert 0 < int(rows[1]["eval_episodes"]) < 8
    assert not (run / "best.h5").exists() and not (run / "finished.yaml").exists()
    assert "continuing from generation 3" in run_mpies(0, *arguments, code=1).stderr
    run_mpies(0, *arguments, "environment.instances=1", code=0)
    rows = read_metrics(run)
    assert len(rows) == 4 and rows[-1]["eval_episodes"] == "8" and (run / "best.h5").exists()


def test_json_of_an_evaluation_with_failures_holds_no_nan(here, monkeypatch):
    (here / "own.py").write_text(LICENSED)
    invoke(*TRAIN, "environment.instances=1", "stop.generations=1", code=0)
    fails = "    def step(self, action): return super().step(float('nan') if action else 0.0)\n"
    (here / "own.py").write_text(LICENSED + fails)
    monkeypatch.setenv("MPIES_TRUST", "1")  # the code is no longer what was trained
    outcome = invoke("evaluate", "run", "--episodes", 30, "--json")
    result = json.loads(outcome.stdout, parse_constant=pytest.fail)
    failed = result["returns"].count(None)
    assert result["failures"] == failed and outcome.code == (failed > 0)


def test_a_mean_that_is_not_finite_ends_training_before_it_is_recorded(run_mpies):
    more = "evaluation.episodes=3", "solver.optimizer.learning_rate=1e38", "--out", "run"
    outcome = run_mpies(2, "train", "LQR-v0", *SMALL, *more, code=1)
    assert "the mean after generation 1 is not finite" in outcome.stderr and "Traceback" not in outcome.stderr
