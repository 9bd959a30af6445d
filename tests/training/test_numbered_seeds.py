"""Which numbered episodes a generation plays, where all its members share theirs."""

import numpy as np
import pytest

from mpies.envs.base import SEED_BITS
from tests.training.test_task import make_task

pytest.importorskip("envpool", reason="EnvPool is not installed")

SWIMMER = {"id": "Swimmer-v5", "backend": "envpool", "seeds": "generation"}


def numbers_of(task, generation, batch=0):
    """The seeds and the numbers of the episodes of a batch."""
    seeds = task.training_seeds(generation, batch)
    return seeds & (1 << SEED_BITS) - 1, seeds >> SEED_BITS


def test_generations_play_the_next_episodes_of_the_same_environments():
    task = make_task(environment=SWIMMER, solver={"kind": "ars", "population": 6})
    seeds, numbers = zip(*(numbers_of(task, generation) for generation in range(130)), strict=True)
    assert [set(n.tolist()) for n in numbers[:3]] == [{1}, {2}, {3}]
    assert all((s == s[0]).all() for s in seeds) and len({s[0] for s in seeds}) == 3  # 64, 64 and 2 generations
    assert [n[0] for n in numbers[62:66]] == [63, 64, 1, 2]
    plain = make_task(environment=SWIMMER | {"backend": "gymnasium"}, solver={"kind": "ars", "population": 6})
    assert np.array_equal(plain.training_seeds(0, 0), seeds[0])
    assert (plain.training_seeds(1, 0) >> SEED_BITS == 0).all()


def test_batches_of_a_generation_follow_each_other():
    task = make_task(environment=SWIMMER, solver={"kind": "pgpe", "population": 6, "interactions": 100})
    order = [(generation, batch) for generation in range(4) for batch in range(16)]
    seeds, numbers = zip(*(numbers_of(task, *one) for one in order), strict=True)
    assert [n[0] for n in numbers] == list(range(1, 65)) and len({s[0] for s in seeds}) == 1
    later = [numbers_of(task, *one) for one in [(0, 16), (4, 0)]]
    assert all(n[0] == 1 and s[0] != seeds[0][0] for s, n in later)


def test_episodes_of_a_member_have_different_seeds_and_pairs_have_no_numbers():
    task = make_task(environment=SWIMMER, solver={"population": 6, "episodes": 2})
    seeds, numbers = numbers_of(task, 3)
    assert len(np.unique(seeds)) == 2 and len(set(numbers.tolist())) == 1
    pairs = make_task(environment={"id": "Swimmer-v5", "backend": "envpool"}, solver={"population": 6, "episodes": 2})
    assert (pairs.training_seeds(3, 0) >> SEED_BITS == 0).all()
