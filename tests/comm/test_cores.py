"""Ranks that stay on cores of their own: which they choose, when they let go, and that the plain command does it."""

import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest

from mpies.comm import cores
from mpies.comm.cores import hold_core, list_places, read_siblings, released
from mpies.comm.serial import Serial
from tests.support import ENDLESS, ranks_of, wait_for

PAIRS = {0: {0, 2}, 1: {1, 3}, 2: {0, 2}, 3: {1, 3}}  # two cores of two hardware threads each
needs_two = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this process may use one processor only")


@pytest.fixture(autouse=True)
def names_of_locks(monkeypatch):
    """Tests that run beside these hold cores of the machine, too."""
    monkeypatch.setattr(cores, "LOCK", f"\0mpies-test-{os.getpid()}-")


@pytest.mark.parametrize(
    ("mask", "ranks", "places"),
    [
        ({0, 1, 2, 3}, 2, [{0, 2}, {1, 3}]),
        ({0, 1, 2, 3}, 3, [{0}, {2}, {1}, {3}]),
        ({0, 1, 2, 3}, 4, [{0}, {2}, {1}, {3}]),
        ({0, 1, 2, 3}, 5, []),
        ({2, 3}, 2, [{2}, {3}]),
        ({1}, 1, [{1}]),
        ({1}, 4, []),
        ({7, 8}, 2, [{7}, {8}]),  # the kernel tells nothing of their cores
    ],
)
def test_a_rank_takes_a_core_a_thread_or_nothing(mask, ranks, places):
    assert list_places(mask, ranks, PAIRS) == places


def test_the_kernel_tells_the_threads_of_a_core(tmp_path):
    folder = tmp_path / "cpu3" / "topology"
    folder.mkdir(parents=True)
    (folder / "thread_siblings_list").write_text("1-3,8\n")
    assert read_siblings({3, 4}, tmp_path) == {3: {1, 2, 3, 8}}


def test_what_the_kernel_tells_of_threads_that_wait_and_of_idle_processors(monkeypatch, tmp_path):
    (tmp_path / "schedstat").write_text("7 2000000000 3\n")  # ns on a processor, ns on a run queue, slices
    (tmp_path / "stat").write_text("cpu 1 1 1 999 9 1\ncpu0 10 0 10 400 50 0\ncpu12 10 0 10 300 0 0\nintr 1 2\n")
    monkeypatch.setattr(cores, "Path", lambda name: tmp_path / name.rpartition("/")[2])
    ticks = os.sysconf("SC_CLK_TCK")
    assert cores._idle() == {0: 450 / ticks, 12: 300 / ticks}
    seconds = cores._waited()
    assert seconds >= 2 and seconds % 2 == 0  # two of each thread


class Bound(Serial):
    """Rank 0 of two on a node, whose launcher has given the other one other hardware threads."""

    def allgather(self, rows, numbers=()):
        return rows, np.array([numbers, [self.node, 0]])


@needs_two
def test_a_core_is_held_within_the_block_alone():
    mask = os.sched_getaffinity(0)
    with hold_core(Serial()) as core:
        held = os.sched_getaffinity(0)
        assert core == f"core {min(held)}" and held < mask
        with ThreadPoolExecutor() as threads:
            assert threads.submit(os.sched_getaffinity, 0).result() == held
        with hold_core(Serial()) as again:  # as a run within a sweep
            assert again == "" and os.sched_getaffinity(0) == held
        with released():
            program = "import os; print(os.sched_getaffinity(0))"
            assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == str(mask)
        assert os.sched_getaffinity(0) == held
    assert os.sched_getaffinity(0) == mask
    for ways in ({"comm": Serial(), "wanted": False}, {"comm": Bound()}):
        with hold_core(**ways) as core:
            assert core == "" and os.sched_getaffinity(0) == mask


@needs_two
def test_another_job_has_another_core(monkeypatch):
    mask = sorted(os.sched_getaffinity(0))
    others = [socket.socket(socket.AF_UNIX) for _ in mask[:-1]]
    for other, cpu in zip(others, mask, strict=False):
        other.bind(f"{cores.LOCK}{cpu}")
    monkeypatch.setattr(cores, "read_siblings", lambda mask: {})
    monkeypatch.setattr(cores, "CHECK", 0.05)
    with hold_core(Serial()) as core:
        assert core == f"core {mask[-1]}"
        with pytest.raises(OSError), socket.socket(socket.AF_UNIX) as lock:
            lock.bind(f"{cores.LOCK}{mask[-1]}")
    last = socket.socket(socket.AF_UNIX)
    last.bind(f"{cores.LOCK}{mask[-1]}")
    with hold_core(Serial()) as core:  # all are taken; one that becomes free is taken then
        assert core == "" and os.sched_getaffinity(0) == {*mask}
        last.close()
        wait_for(lambda: os.sched_getaffinity(0) != {*mask}, seconds=20)
        assert os.sched_getaffinity(0) == {mask[-1]}
    for other in others:
        other.close()


@needs_two
def test_a_core_that_is_shared_is_let_go_while_another_one_is_idle(monkeypatch):
    mask = os.sched_getaffinity(0)
    monkeypatch.setattr(cores, "CHECK", 0.05)
    waited = iter(range(1000, 2000))
    monkeypatch.setattr(cores, "_waited", lambda: 1000.0)  # before it had the core
    with hold_core(Serial()):
        held = os.sched_getaffinity(0)
        time.sleep(0.3)
        assert os.sched_getaffinity(0) == held
        monkeypatch.setattr(cores, "_idle", lambda: dict.fromkeys(mask, time.monotonic()))
        time.sleep(0.3)
        assert os.sched_getaffinity(0) == held  # it does not wait
        monkeypatch.setattr(cores, "_waited", lambda: float(next(waited)))
        wait_for(lambda: os.sched_getaffinity(0) != held, seconds=20)
        assert os.sched_getaffinity(0) == mask
    assert os.sched_getaffinity(0) == mask


def have_cores(ranks):
    """Whether each rank has a core of its own; where one has none, all are held by others, as by tests beside this."""
    masks = [{*rank.cpu_affinity()} for rank in ranks]
    if any(len(mask) > 1 for mask in masks):
        return all(is_held(cpu) for cpu in os.sched_getaffinity(0))
    return len(set.union(*masks)) == len(masks) == 2


def is_held(cpu):
    with socket.socket(socket.AF_UNIX) as lock:
        try:
            lock.bind(f"\0mpies-cpu-{cpu}")
        except OSError:
            return True
    return False


@needs_two
@pytest.mark.parametrize("overrides", [[], ["bind_ranks=false"]])
def test_the_plain_command_keeps_each_rank_on_a_core(overrides, start_mpies, write_config, tmp_path):
    words = "--out", "run", "--ranks", "2", "stop.seconds=60"
    job = start_mpies(0, "train", write_config(ENDLESS), *words, *overrides)
    wait_for(lambda: (tmp_path / "run/metrics.csv").exists() and len(ranks_of(job)) == 2, job)
    if overrides:
        assert all({*rank.cpu_affinity()} == os.sched_getaffinity(0) for rank in ranks_of(job))
    else:
        wait_for(lambda: have_cores(ranks_of(job)), job)
    psutil.Process(job.pid).terminate()
    job.communicate(timeout=60)
