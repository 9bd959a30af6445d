"""The update on all ranks: the same live and replayed, on one rank and on three."""

import time
from dataclasses import replace

import numpy as np
import pytest

from mpies.comm import connect
from mpies.comm.serial import Serial
from mpies.config.loading import validate_config
from mpies.core.errors import NotEnoughSharedMemory
from mpies.runs.formats import hdf5
from mpies.solvers.base import Results
from mpies.solvers.sampling import noise
from mpies.training.evaluation.generation import PlayedGeneration
from mpies.training.learner import Learner
from mpies.training.update import Updater, make_solver
from tests.support import on_one_and_three_ranks

DIMENSION, MEMBERS = 1003, 8


def make_updater(comm, observation_size=2, **sections):
    """An Updater of a run that begins at 0."""
    common = {"environment": {"id": "function:sphere", "dimension": DIMENSION}, "noise": {"size": 5000}}
    solver = {"kind": "openai_es", "population": MEMBERS}
    config = validate_config(common | {"solver": solver} | sections, "x")
    updater = Updater(config, make_solver(config, DIMENSION), comm)
    learner = None
    if comm.is_root:
        learner = Learner(config, updater.solver, observation_size)
        learner.start({"parameters": np.zeros(DIMENSION)})
    updater.begin(learner)
    return updater


def test_rows_that_do_not_fit_into_memory_name_the_key_that_decides_it():
    with pytest.raises(NotEnoughSharedMemory, match=r"do not fit into memory: lower solver\.population"):
        make_updater(Serial(), solver={"kind": "cma_es", "population": 2**45})


def play(updater):
    """The population of the coming generation, whose returns are made up."""
    results = Results.of(np.random.default_rng(updater.generation).standard_normal(MEMBERS))
    return PlayedGeneration(results, updater.solver.population_indices(updater.generation, 0))


def apply_generations(updater, generations=3):
    for _ in range(generations):
        parts, _ = updater.next_parts()
        updater.apply(parts, play(updater))


@pytest.mark.parametrize(
    ("first", "expected", "second"),
    [
        ([4, 8, 12, np.nan], [0.2, 0.4, 0.6, np.nan], [-1.7, -3.4, 6.6, 0]),  # 24 in 30 steps: 0.95 of 0.8 is the bonus
        ([-1, 8, 12, np.nan], [-1, 8, 12, np.nan], [4, 8, 18, 0]),  # one member gained nothing by its steps
        ([np.nan] * 4, [np.nan] * 4, [4, 8, 18, 0]),
    ],
)
def test_an_automatic_shift_subtracts_most_of_what_a_step_gained_in_the_first_generation(
    first, expected, second, monkeypatch
):
    cartpole = {"id": "CartPole-v1", "reward_shift": "auto"}
    updater = make_updater(Serial(), 0, environment=cartpole, solver={"population": 4, "episodes": 2})
    tell, told = updater.solver.tell, []
    monkeypatch.setattr(updater.solver, "tell", lambda *a: told.append(a[1].returns) or tell(*a))
    for returns, steps in ((first, [5, 10, 15, 9]), ([4, 8, 18, 0], [7.5, 15, 15, 0])):
        results = replace(Results.of(returns), steps=2 * np.array(steps))
        parts, _ = updater.next_parts()
        updater.apply(parts, PlayedGeneration(results, updater.solver.population_indices(updater.generation, 0)))
    np.testing.assert_allclose(told, [expected, second], atol=1e-12)
    assert float(updater.learner.state()["bonus"]) == pytest.approx(0.76 if first[0] == 4 else 0)


@on_one_and_three_ranks
@pytest.mark.parametrize("overlap", [0.5, 1])
def test_with_overlap_what_was_announced_is_what_is_played(overlap, ranks):
    comm, early, announced = connect(), round(overlap * MEMBERS), None
    updater, alone = make_updater(comm, overlap=overlap), make_updater(Serial(), overlap=overlap)
    for generation in range(4):
        parts, upcoming = updater.next_parts()
        expected, expected_upcoming = alone.next_parts()
        bounds = [(part.start, part.stop) for part in parts]
        if generation < 2:
            assert announced is None and bounds == [(0, MEMBERS)]
        else:
            assert parts[0].spec.proposal.mean.tobytes() == announced.spec.proposal.mean.tobytes()
            assert bounds == [(0, early), (early, MEMBERS)][: 2 if overlap < 1 else 1]
        assert (upcoming is None) == (generation == 0)
        announcements = [] if upcoming is None else [(upcoming, expected_upcoming)]
        for part, other in [*zip(parts, expected, strict=True), *announcements]:
            assert part.spec.proposal.mean.tobytes() == other.spec.proposal.mean.tobytes()
        announced = upcoming
        updater.apply(parts, play(updater))
        alone.apply(expected, play(alone))
    if comm.is_root:
        assert updater.learner.digest() == alone.learner.digest()


def test_early_members_are_sampled_around_where_adam_is_expected_to_go():
    updater = make_updater(Serial(), overlap=0.5)
    apply_generations(updater, 3)
    mean = updater.next_parts()[1].spec.proposal.mean
    assert np.array_equal(mean, updater.solver.predict_mean())
    assert not np.allclose(mean, updater.solver.mean, atol=1e-4)


@on_one_and_three_ranks
def test_the_noise_table_is_filled_by_all_ranks_of_a_node_which_share_it(ranks, monkeypatch):
    monkeypatch.setattr(noise, "BLOCK", 100)
    comm = connect()
    updater = make_updater(comm)
    expected = np.empty(5000, np.float32)
    for block in range(noise.blocks(5000)):
        noise.fill(expected, updater.config.seed, block)
    table = updater.solver.table
    assert noise.blocks(5000) == 50 and table.tobytes() == expected.tobytes()
    comm.node_barrier()
    if comm.is_root:
        table[7] = 99
    comm.node_barrier()
    assert table[7] == 99  # there is one on the node


def test_only_noise_that_is_read_is_filled_and_each_block_once(monkeypatch):
    monkeypatch.setattr(noise, "BLOCK", 100)
    filled, fill = [], noise.fill
    monkeypatch.setattr(noise, "fill", lambda *some: filled.append(some[2]) or fill(*some))
    updater = make_updater(Serial())
    assert filled == []
    apply_generations(updater, 1)
    indices = updater.solver.population_indices(0, 0).tolist()
    read = {block for index in indices for block in range(index // 100, (index + DIMENSION - 1) // 100 + 1)}
    assert sorted(filled) == sorted(read) and len(read) < 50
    assert updater.solver.table.all() and sorted(filled) == list(range(50))


@on_one_and_three_ranks
def test_every_rank_gets_the_newest_mean_and_normalization(ranks):
    comm = connect()
    updater = make_updater(comm)
    apply_generations(updater)
    if comm.is_root:
        updater.learner.normalizer.add(np.array([10.0]), np.array([[20.0, 30.0]]), np.array([[100.0, 200.0]]))
    mean, normalization = updater.broadcast_mean()
    digest = np.frombuffer(hdf5.digest({"mean": mean}).encode(), np.uint8)
    assert comm.broadcast([digest])[0].tobytes() == digest.tobytes()
    assert mean.any() and mean.dtype == np.float32
    assert normalization.shape == (2, 2) and normalization[0].tolist() == [2, 3]
    without = make_updater(comm, observation_size=0)
    assert without.broadcast_mean()[1] is None and (not comm.is_root or without.learner.ask().normalization is None)


@pytest.mark.mpi(3)
def test_ranks_go_on_from_the_generation_and_the_early_spec_of_rank_0():
    comm = connect()
    updater = make_updater(comm, overlap=1)
    apply_generations(updater, 2)
    if comm.is_root:
        updater.learner.early.ready.proposal.mean[:] = 5  # not what the other ranks know
    updater.generation = 7 if comm.rank else updater.generation
    updater.begin(updater.learner)
    assert updater.generation == 2 and (updater.next_parts()[0][0].spec.proposal.mean == 5).all()


def test_a_generation_that_goes_on_after_a_loss_keeps_its_seconds():
    updater = make_updater(Serial())
    updater.next_parts()
    time.sleep(0.2)
    updater.begin(updater.learner)  # as after the loss of a rank
    parts, _ = updater.next_parts()
    updater.apply(parts, play(updater))
    first = updater.learner.clock.seconds
    assert first >= 0.2
    apply_generations(updater, 1)
    assert updater.learner.clock.seconds < first + 0.2
