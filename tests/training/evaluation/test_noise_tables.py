"""Noise tables that the processes of a node share."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mpies.core.errors import NotEnoughSharedMemory
from mpies.solvers.sampling import noise
from mpies.training.evaluation.noise_tables import NoiseTables

SIZE = 3 * noise.BLOCK + 100


def whole(tables, seed, size):
    """The table of a seed, filled."""
    filling = tables.get(seed, size)
    filling.fill(0, size)
    return filling.table


@pytest.fixture
def opened(tmp_path):
    """Open the same file as another process would: with an open file, and so with locks, of its own."""
    tables = []

    def open_tables():
        tables.append(NoiseTables(os.open(tmp_path / "tables", os.O_RDWR | os.O_CREAT)))
        return tables[-1]

    yield open_tables
    for one in tables:
        one.close()


def test_tables_are_those_of_lone_runs(opened):
    tables = opened()
    for seed, size in [(1, SIZE), (2, SIZE), (1, 1000), (2**63, SIZE), (10**40, SIZE)]:
        np.testing.assert_array_equal(whole(tables, seed, size), noise.build_table(size, seed))
    assert whole(tables, 1, 0).size == 0


def test_a_table_is_shared_while_it_is_used_and_its_memory_is_given_back_afterwards(opened):
    first, second, third = opened(), opened(), opened()
    one, same = whole(first, 1, SIZE), whole(second, 1, SIZE)
    other = whole(third, 2, SIZE)
    one[5] = 7.0
    assert same[5] == 7.0 and other[5] != 7.0
    blocks = os.fstat(first._file).st_blocks
    first.release()
    np.testing.assert_array_equal(whole(first, 3, SIZE), noise.build_table(SIZE, 3))  # second uses that of seed 1
    assert same[5] == 7.0 and os.fstat(first._file).st_blocks > blocks
    blocks = os.fstat(first._file).st_blocks
    second.release()
    np.testing.assert_array_equal(whole(second, 4, SIZE), noise.build_table(SIZE, 4))
    assert os.fstat(first._file).st_blocks == blocks and same[5] == 0.0


def test_memory_of_unused_tables_is_given_back(opened):
    tables = opened()
    for size in range(1, 6):
        whole(tables, 1, size * noise.BLOCK)
    assert os.fstat(tables._file).st_blocks * 512 < 7 * noise.BLOCK * 4


def test_several_fill_a_table_together(opened):
    with ThreadPoolExecutor() as pool:
        for table in list(pool.map(lambda tables: whole(tables, 1, SIZE), [opened() for _ in range(4)])):
            np.testing.assert_array_equal(table, noise.build_table(SIZE, 1))


def test_blocks_that_a_process_died_with_are_filled_by_another(opened, monkeypatch):
    tables = opened()
    child = os.fork()
    if child == 0:  # takes the first block, and dies
        monkeypatch.setattr(noise, "fill", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        whole(opened(), 1, SIZE)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    np.testing.assert_array_equal(whole(tables, 1, SIZE), noise.build_table(SIZE, 1))


def test_too_little_memory_is_a_mistake_of_the_user(opened):
    with pytest.raises(NotEnoughSharedMemory, match=r"lower noise\.size"):
        opened().get(1, 2**44)
