"""The state of a run: told, saved, restored, copied."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest

from mpies.config.loading import validate_config
from mpies.rollouts.batch import NEVER, observation_record
from mpies.runs.formats import hdf5
from mpies.runs.snapshot import Evaluation
from mpies.solvers.base import Results
from mpies.training.evaluation.generation import PlayedGeneration
from mpies.training.learner import Learner, Normalizer
from mpies.training.task import Task
from mpies.training.update import make_solver

ADAPTIVE = {"id": "CartPole-v1", "adaptive": {"start": 10, "threshold": 0.5, "ratio": 1.5}}


def make_learner(overlap=0, environment=ADAPTIVE, **solver):
    sections = {"environment": environment, "policy": {"hidden": []}, "noise": {"size": 20000}, "overlap": overlap}
    config = validate_config(sections | {"solver": {"population": 16, "episodes": 2} | solver}, "x")
    task = Task(config)
    solver = make_solver(config, task.dimension, task.directions)
    return Learner(config, solver, task.observation_size, {"reference": np.arange(3)})


def started(**values):
    learner = make_learner(**values)
    learner.start({"parameters": np.linspace(-1, 1, learner.solver.dimension)})
    return learner


def make_population(steps=20, failed=()):
    """Sixteen members, whose returns are 0 .. 15."""
    returns = np.arange(16.0)
    returns[list(failed)] = np.nan
    results = Results(returns, np.ones(16), np.full(16, steps), np.zeros((16, 0)), np.zeros((16, 0)))
    sums = np.array([(0, 2.0, np.ones(4), np.ones(4))], observation_record(4))
    return PlayedGeneration(results, np.arange(8), [sums], busy=np.array([0.25, 0.5]))


def advance(learner, population=None, seconds=0.5, generations=1):
    for _ in range(generations):
        spec, ready = learner.ask(), learner.early.ready
        if learner.config.overlap:
            learner.ask_early()
        random = np.random.default_rng(learner.clock.generation)
        moments = random.standard_normal((1, learner.solver.dimension)).astype(np.float32)
        population = population or make_population()
        learner.tell(ready or spec, population.results, population, moments, seconds)


def copy_of(arrays):
    return {name: (np.asarray(value).dtype, np.asarray(value).tobytes()) for name, value in arrays.items()}


def checkpoint_of(learner):
    return learner.state() | learner.progress()


def test_the_clock_counts_generations_episodes_steps_and_seconds():
    learner = started()
    advance(learner, generations=3)
    clock = learner.clock
    assert (clock.generation, clock.episodes, clock.steps, clock.seconds) == (3, 96, 960, 1.5)
    assert learner.speed == 640
    assert learner.idle.tolist() == [0.5, 0.0]
    assert learner.normalizer.count == 6 and learner.normalizer.total.tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize(
    ("reached", "ratio", "limit", "threshold"),
    [
        *((7, 1.5, 10, 0.5), (8, 1.5, 15, 0.5), (16, 1e308, NEVER, 0.5), (16, None, None, 0.5)),
        *((16, 1.01, 11, 0.5), (0, 1.5, 15, 0), (15, 1.01, 11, 0), (16, 1.01, 11, 0)),  # by a step at least
        *((16, 1.5, 33, 0), (16, 1e308, NEVER, 0), (16, 1.5, 15, 0.1)),
    ],
)
def test_the_limit_is_raised_where_enough_members_reach_it_in_all_episodes(reached, ratio, limit, threshold):
    adaptive = ratio and {"start": 10, "threshold": threshold, "ratio": ratio}
    learner = started(environment={"id": "CartPole-v1", "adaptive": adaptive})
    advance(learner, make_population(steps=np.where(np.arange(16) < reached, 20, 19)))
    assert learner.limit == learner.ask().limit == limit and ("limit" in learner.state()) == (limit is not None)


@pytest.mark.parametrize("overlap", [0.5, 1])
@pytest.mark.parametrize("restored", [False, True])
def test_early_members_are_compared_with_the_limit_that_they_were_played_under(overlap, restored):
    learner = started(overlap=overlap)
    advance(learner)  # generation 0, under 10; the early members of generation 1 are played under it as well
    assert learner.limit == 15 and learner.early.ready.limit == 10
    if restored:
        state, learner = checkpoint_of(learner), make_learner(overlap=overlap)
        learner.restore({name: np.asarray(value) for name, value in state.items()})
    early = learner.config.solver.early_members(overlap, learner.solver.dimension)
    steps = np.where(np.arange(16) < early, 20, 2)  # two episodes each
    assert early == {0.5: 8, 1: 16}[overlap]
    advance(learner, make_population(steps=steps))  # half of all are enough
    assert learner.limit == 22 and learner.early.ready.limit == 15
    advance(learner, make_population(steps=steps))
    assert learner.limit == 22  # 20 steps of two episodes are below 15


@pytest.mark.parametrize("overlap", [0, 1])
def test_a_loaded_learner_goes_on_with_the_same_bits(overlap):
    one, other = started(overlap=overlap), make_learner(overlap=overlap)
    advance(one, generations=3)
    one.update_best(Evaluation(np.array([3.0, 4.0]), np.array([1, 1])))
    saved = hdf5.unpack(hdf5.pack(checkpoint_of(one), {}), "x")[0]
    other.restore(saved)
    assert copy_of(checkpoint_of(other)) == copy_of(checkpoint_of(one))
    assert other.best == 3.5 and other.clock == one.clock and other.digest() == one.digest()
    for learner in (one, other):
        advance(learner, generations=2)
    assert other.digest() == one.digest() and (other.early.ready is None) == (overlap == 0)


def test_the_digest_changes_with_everything_the_next_generation_depends_on():
    learner = started(overlap=1)
    advance(learner)
    digests = {learner.digest()}
    learner.limit += 1
    digests.add(learner.digest())
    for array in (learner.normalizer.count, learner.solver.mean[3:4], learner.early.ready.proposal.mean[3:4]):
        array += 1
        digests.add(learner.digest())
    assert len(digests) == 5
    learner.clock.seconds += 1  # not on the machine's speed
    learner.best = 9.0
    assert learner.digest() in digests


def test_the_best_evaluation_is_remembered_and_only_a_confirmed_one_solves():
    learner = started()
    means = [(2.0, True), (5.0, True), (5.0, False), (3.0, False), (6.0, True)]
    assert [learner.update_best(Evaluation(np.array([m]), np.array([1]))) for m, _ in means] == [b for _, b in means]
    assert learner.best == 6.0 and learner.solved == -math.inf
    assert not learner.update_best(Evaluation(np.array([math.nan]), np.array([1]))) and learner.best == 6.0


def test_a_snapshot_does_not_change_with_the_learner():
    learner = started(overlap=1)
    advance(learner, generations=2)
    population, evaluation = make_population(), Evaluation(np.array([1.0, 2.0]), np.array([5, 5]))
    snapshot = learner.snapshot(population, evaluation, is_best=True, ranks=2)
    parts = "state", "progress", "policy", "results"
    before = {name: copy_of(getattr(snapshot, name)) for name in parts}
    row, generation, idle = dict(snapshot.row), snapshot.generation, snapshot.idle.copy()
    advance(learner, generations=3, seconds=0.75)
    for array in (learner.solver.mean, learner.normalizer.total, learner.normalizer.count, learner.normalizer.squares):
        array += 1
    for vector in learner.early.ready.vectors():
        vector += 1
    learner.update_best(Evaluation(np.array([99.0]), np.array([1])))
    learner.limit = 1000
    assert {name: copy_of(getattr(snapshot, name)) for name in parts} == before
    assert (snapshot.row, snapshot.generation, snapshot.idle.tolist()) == (row, generation, idle.tolist())


def test_a_snapshot_holds_what_a_checkpoint_a_policy_and_the_ledger_need():
    learner = started()
    advance(learner)
    population = make_population(failed=[3])
    snapshot = learner.snapshot(population, ranks=4)
    assert copy_of({**snapshot.state, **snapshot.progress}) == copy_of(checkpoint_of(learner))
    assert hdf5.digest(snapshot.state) == learner.digest()
    assert copy_of(snapshot.policy) == copy_of(learner.policy())
    statistics = {f"normalizer/{name}" for name in ("count", "total", "squares")}
    assert snapshot.policy.keys() == {"parameters", "normalization", "constants/reference"} | statistics
    assert snapshot.results["returns"] is population.results.returns and snapshot.evaluation is None
    row = snapshot.row
    assert (row["generation"], row["episodes"], row["failures"], row["ranks"]) == (1, 32, 1, 4)
    assert (row["return_min"], row["return_max"], row["return_mean"]) == (0, 15, (120 - 3) / 15)
    assert (row["length_mean"], row["observations"], row["eval_mean"]) == (10, 2, None)
    assert (row["idle_mean"], row["idle_max"]) == (0.25, 0.5)
    assert "sigma" in row
    row = learner.snapshot(make_population(failed=range(16))).row
    assert row["failures"] == 16
    assert {row[name] for name in ("return_mean", "return_std", "return_min", "return_max")} == {None}
    nothing = learner.snapshot()
    assert nothing.row == {} and nothing.results == {} and nothing.idle is None


@pytest.mark.parametrize("kind", ["snes", "ars", "sep_cma", "openai_es"])
def test_every_solver_has_the_ratio_of_its_step_to_its_mean(kind):
    learner = started(kind=kind, episodes=1)
    before, spec, population = learner.solver.mean.copy(), learner.ask(), make_population()
    weights = learner.solver.compute_weights(population.results, spec.proposal)
    shape = len(weights.linear) + len(weights.square), learner.solver.dimension
    moments = np.abs(np.random.default_rng(1).standard_normal(shape)).astype(np.float32)
    learner.tell(spec, population.results, population, moments, 0.5)
    ratio = np.linalg.norm(learner.solver.mean - before) / np.linalg.norm(learner.solver.mean)
    assert ratio > 0 and learner.snapshot(population).row["update_ratio"] == pytest.approx(ratio, rel=1e-4)


@pytest.mark.parametrize("kind", ["cr_fm_nes", "sep_cma", "snes"])
def test_numbers_that_overflow_cause_no_warnings(kind):
    learner = started(kind=kind)
    learner.speed, learner.idle = 1.0, np.zeros(1)  # of a generation that was played
    huge = np.full(16, 1e200) * np.arange(16)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.solver.sigma = 1e39 if kind != "snes" else learner.solver.sigma * np.inf
        assert learner.ask().proposal.scale.max() == np.inf
        row = learner.row(replace(make_population(), results=Results.of(huge)), None, {})
    assert row["return_std"] == np.inf and row["return_max"] == huge[-1]


def test_statistics_are_those_of_all_observations():
    observations = np.random.default_rng(0).normal(3, 2, (500, 4))
    normalizer = Normalizer(4)
    for part in np.split(observations, [0, 100, 101, 350]):  # the first has none
        normalizer.add([len(part)], [part.sum(axis=0)], [np.square(part).sum(axis=0)])
    mean, deviation = normalizer.mean_and_deviation()
    assert mean.dtype == np.float32 and normalizer.count == 500
    np.testing.assert_allclose(mean, observations.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(deviation, observations.std(axis=0), rtol=1e-6)


def test_nothing_is_changed_before_two_observations_and_an_input_that_never_moves_is_not_blown_up():
    normalizer = Normalizer(1)
    for count, deviation in ((0, 1), (1, 1), (999, 0.01)):
        normalizer.add([count], [[count * 1e8]], [[count * 1e16]])
        expected = [[0 if count < 2 else 1e8], [deviation]]
        np.testing.assert_allclose(normalizer.mean_and_deviation(), expected, rtol=1e-6)
