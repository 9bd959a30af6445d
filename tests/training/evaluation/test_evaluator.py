"""Populations and means, played by an Evaluator, and the specs that members are sampled from."""

from dataclasses import replace

import numpy as np
import pytest

from mpies.comm import connect
from mpies.comm.serial import Serial
from mpies.config.loading import validate_config
from mpies.rollouts.batch import rollout_record
from mpies.solvers.base import Gaussian
from mpies.training.control import Control, TrainingStopped
from mpies.training.evaluation.evaluator import Evaluator, results_of_members
from mpies.training.evaluation.generation import GenerationSpec, Part, QueueKey
from mpies.training.evaluation.overlap import EarlySpecs
from mpies.training.learner import Learner
from mpies.training.task import Task
from mpies.training.update import Updater, make_solver
from tests.support import on_one_and_three_ranks


class Rig:
    """An Evaluator with all it needs, at the beginning of a run."""

    def __init__(self, comm, **sections):
        cartpole = {"environment": {"id": "CartPole-v1", "max_steps": 40}, "policy": {"hidden": []}}
        values = cartpole | {"solver": {"population": 12, "sigma": 0.5}, "noise": {"size": 20000}} | sections
        self.config = config = validate_config(values, "x")
        self.comm, self.task = comm, Task(config)
        self.solver = make_solver(config, self.task.dimension, self.task.directions)
        self.control = Control(config.stop, comm)
        self.updater = Updater(config, self.solver, comm)
        self.evaluator = Evaluator(config, self.task, self.solver, comm, self.control)
        learner = None
        if comm.is_root:
            learner = Learner(config, self.solver, self.task.observation_size)
            learner.start(self.task.first_policy())
        self.updater.begin(learner)

    def evaluate(self, generation=0):
        parts, upcoming = self.updater.next_parts()
        return self.evaluator.evaluate(parts, generation, prefetch=upcoming)

    def evaluate_mean(self, generation=1):
        return self.evaluator.evaluate_mean(self.updater.broadcast_mean(), generation)


def bits_of(population):
    results = population.results
    arrays = results.returns, results.sign_returns, results.steps, results.payload, results.behaviours
    return [array.tobytes() for array in arrays] + [sums.tobytes() for sums in population.observations]


@on_one_and_three_ranks
def test_all_ranks_together_play_what_one_plays_alone(ranks):
    comm, solver = connect(), {"population": 12, "sigma": 0.5, "episodes": 3, "fitness": "sign"}
    sections = {"solver": solver, "policy": {"hidden": [], "statistics_fraction": 0.5}}
    population, expected = Rig(comm, **sections).evaluate(), Rig(Serial(), **sections).evaluate()
    assert len(set(expected.results.returns)) > 3
    assert population.indices.tolist() == expected.indices.tolist()
    assert population.busy.shape == (ranks,) and (population.busy >= 0).all() and expected.busy > 0
    assert bits_of(population) == bits_of(expected)[: None if comm.is_root else 5]  # rank 0 alone has observations


def note_draws(rig):
    """A list that gets (generation, batch) of the noise indices which the solver of `rig` draws, and how it draws."""
    drawn, draw = [], rig.solver.population_indices
    rig.solver.population_indices = lambda *arguments: drawn.append(arguments) or draw(*arguments)
    return drawn, draw


def test_whole_populations_are_played_until_the_batch_has_enough_steps_and_noise_is_drawn_once():
    rig = Rig(Serial(), solver={"population": 12, "sigma": 0.5, "timesteps_per_batch": 700})
    drawn, draw = note_draws(rig)
    for generation in range(2):
        population = rig.evaluate(generation)
        steps, batches = population.results.steps, len(population.results.returns) // 12
        assert len(steps) == 12 * batches and batches >= 2 and steps.sum() >= 700 > steps[:-12].sum()
        assert population.indices.tolist() == [index for batch in range(batches) for index in draw(generation, batch)]
        assert sum(len(sums) for sums in population.observations) <= len(steps)
        assert [key.batch for key in rig.evaluator.queues] == list(range(batches))
    assert len(drawn) == len(set(drawn))


@on_one_and_three_ranks
def test_a_mean_that_reaches_the_target_is_evaluated_again_on_fresh_episodes(ranks):
    comm = connect()
    values = {"evaluation": {"episodes": 7}}
    plain = Rig(comm, **values).evaluate_mean()
    assert plain.returns.shape == plain.lengths.shape == (7,) and not plain.confirmed
    missed = Rig(comm, **values, stop={"target": 1000}).evaluate_mean()
    assert missed.returns.tolist() == plain.returns.tolist() and not missed.confirmed
    rig = Rig(comm, **values, stop={"target": 5})
    confirmed = rig.evaluate_mean()
    assert confirmed.confirmed and confirmed.returns.shape == (7 + 100,)
    assert confirmed.returns[:7].tolist() == plain.returns.tolist()
    assert confirmed.returns[:7].tolist() != confirmed.returns[7:14].tolist()  # of other seeds
    assert Rig(comm, evaluation={"episodes": 102}, stop={"target": 5}).evaluate_mean().returns.shape == (204,)
    assert rig.evaluate_mean(generation=2).returns.tolist() != confirmed.returns.tolist()
    result = rig.evaluator.evaluate_mean(rig.updater.broadcast_mean(), 1, is_result=True)
    assert result.returns.tolist() == confirmed.returns.tolist()  # it tolerates no failures, and has none


@pytest.mark.parametrize(("second", "is_confirmed"), [(19.9, False), (20.0, True)])
def test_a_second_evaluation_at_the_target_confirms(second, is_confirmed):
    rig = Rig(Serial(), evaluation={"episodes": 7}, stop={"target": 20})
    means, play = iter([20.0, second]), rig.evaluator._play_mean
    rig.evaluator._play_mean = lambda *some: replace(play(*some), returns=np.full(7, next(means)))
    assert rig.evaluate_mean().confirmed is is_confirmed


@pytest.mark.parametrize("is_last", [False, True])
def test_with_overlap_the_next_generation_is_open_and_goes_on_unless_this_is_the_last_one(is_last):
    rig = Rig(Serial(), overlap=1, solver={"kind": "pepg", "population": 12}, stop={"generations": 2 if is_last else 9})
    rig.updater.generation = rig.updater.learner.clock.generation = 1
    drawn, _ = note_draws(rig)
    parts, upcoming = rig.updater.next_parts()
    rig.evaluator.evaluate(parts, 1, prefetch=upcoming)
    opened = rig.evaluator.queues.get(QueueKey(2, "training", 0))
    assert (opened is None) == is_last
    if opened:
        rig.evaluator.evaluate([upcoming], 2)
        assert rig.evaluator.queues == {QueueKey(2, "training", 0): opened} and opened.is_finished.all()
        assert drawn == [(1, 0), (2, 0)]


@on_one_and_three_ranks
def test_the_parts_of_a_generation_are_one_population_in_member_order(ranks):
    sections = {"solver": {"kind": "pepg", "population": 12, "episodes": 2, "sigma_init": 1.0}}
    rig = Rig(connect(), overlap=0.5, **sections)
    whole = rig.evaluate()
    rig.evaluator.queues.clear()
    spec = rig.updater.next_parts()[0][0].spec
    divided = rig.evaluator.evaluate([Part(replace(spec, limit=3), 0, 6), Part(spec, 6, 12)], 0)
    keys = QueueKey(0, "training", 0, 0), QueueKey(0, "training", 0, 6)
    assert tuple(rig.evaluator.queues) == keys and [len(rig.evaluator.queues[key].batch) for key in keys] == [12, 12]
    assert divided.results.returns[6:].tolist() == whole.results.returns[6:].tolist()  # those of the same spec
    assert (divided.results.steps[:6] == 6).all() and (whole.results.steps[:6] > 6).all()
    assert divided.indices.tolist() == whole.indices.tolist()
    assert all(queue.batch.is_training for queue in rig.evaluator.queues.values())


@on_one_and_three_ranks
def test_what_was_played_before_a_rank_was_lost_is_not_played_again(ranks):
    comm = connect()
    rig, expected = Rig(comm), bits_of(Rig(Serial()).evaluate())[0]
    rig.evaluate()  # all of the generation
    played, player, play = [], rig.task.player, rig.task.player.play
    player.play = lambda queues, *rest: played.append(len(queues[0].pending)) or play(queues, *rest)
    rig.evaluator.keep_finished()
    assert not rig.evaluator.queues
    assert rig.evaluate().results.returns.tobytes() == expected
    assert played == [0]
    rig.evaluator.queues.forget_kept()
    rig.evaluator.queues.clear()
    assert rig.evaluate().results.returns.tobytes() == expected
    assert played == [0, 12]


def test_an_abandoned_generation_raises():
    rig = Rig(Serial())
    rig.comm.request_abandon()
    with pytest.raises(TrainingStopped):
        rig.evaluate()


def test_results_of_members_are_means_over_their_episodes():
    records = np.zeros(6, rollout_record(payload_size=2, behaviour_size=1))
    records["rollout"] = np.arange(6)
    records["total"], records["signs"] = [1, 2, 6, 10, 20, np.nan], [1, 1, 4, 0, 0, 0]
    records["steps"], records["payload"] = [5, 6, 7, 1, 1, 1], [[8, 9]] * 3 + [[3, 4]] * 3
    records["behaviour"][:, 0] = [0, 3, 6, 1, 1, 1]
    results = results_of_members(records, episodes=3)
    assert results.returns[0] == 3 and np.isnan(results.returns[1])
    assert results.sign_returns.tolist() == [2, 0] and results.steps.tolist() == [18, 3]
    assert results.payload.tolist() == [[8, 9], [3, 4]] and results.behaviours.tolist() == [[3], [1]]


def test_an_early_spec_keeps_its_vectors_while_the_solver_changes_its_own_and_is_ready_for_one_generation():
    mean, scale = np.arange(3, dtype=np.float32), np.full(1, 0.5, np.float32)
    spec = GenerationSpec(Gaussian(mean, scale), np.ones((2, 4), np.float32), 5)
    early, expected_mean = EarlySpecs(), mean + 7
    fixed = early.fix(spec, expected_mean)
    before = [vector.tolist() for vector in fixed.vectors()]
    for vector in (expected_mean, *spec.vectors()):
        vector += 1
    assert [vector.tolist() for vector in fixed.vectors()] == before and fixed.limit == 5
    assert fixed.proposal.mean.tolist() == [7, 8, 9]
    assert early.ready is None and early.advance() is None
    assert early.ready is fixed and early.advance() is fixed
    assert early.ready is None and not early.state()
