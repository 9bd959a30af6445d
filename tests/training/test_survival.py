"""Signals and deaths under mpiexec: nothing is lost and nothing hangs; and one noise table per node."""

import os
import signal

import psutil
import pytest

from mpies.runs.formats.checkpoint import newest_checkpoint
from mpies.runs.formats.metrics import read_digests
from tests.support import ENDLESS, ranks_of, wait_for


def assert_resumed(run, ranks, run_mpies):
    """On so many ranks a run goes on with the bits of an undisturbed one."""
    made = len(read_digests(run))
    train = "train", "config.yaml", f"stop.generations={made + 3}", "--out"
    run_mpies(ranks, *train, "run", "--resume", "must", code=0)
    assert run_mpies(0, *train, "undisturbed").code == 0
    assert read_digests(run) == read_digests(run.with_name("undisturbed"))


@pytest.mark.parametrize(
    ("whom", "number", "ranks"),
    # On SIGTERM mpiexec of Open MPI ends with a code of its own; the next test reads what is then on disk.
    [("mpiexec", signal.SIGUSR1, 0), ("rank 0", signal.SIGUSR1, 0), ("rank 1", signal.SIGTERM, 3)],
)
def test_a_signal_ends_with_a_checkpoint_and_code_75_and_the_run_goes_on(
    whom, number, ranks, start_mpies, run_mpies, write_config, tmp_path
):
    config, run = write_config(ENDLESS), tmp_path / "run"
    process = start_mpies(2, "train", config, "--out", "run")
    wait_for(lambda: len(read_digests(run)) >= 3, process)
    os.kill(process.pid if whom == "mpiexec" else ranks_of(process)[int(whom[-1])].pid, number)
    assert process.wait(30) == 75
    assert newest_checkpoint(run, print)[1]["generation"] == len(read_digests(run))
    assert_resumed(run, ranks, run_mpies)


@pytest.mark.parametrize(
    ("victim", "number", "ranks"),
    [("mpiexec", signal.SIGTERM, 0), ("mpiexec", signal.SIGKILL, 0), ("rank 1", signal.SIGKILL, 2)],
)
def test_a_killed_process_loses_nothing_that_was_on_disk(
    victim, number, ranks, start_mpies, run_mpies, write_config, tmp_path
):
    config, run = write_config(ENDLESS), tmp_path / "run"
    process = start_mpies(2, "train", config, "--out", "run")
    wait_for(lambda: len(read_digests(run)) >= 5, process)
    started = ranks_of(process)
    os.kill(process.pid if victim == "mpiexec" else started[int(victim[-1])].pid, number)
    assert process.wait(30) != 0
    alive = psutil.wait_procs(started, timeout=10)[1]
    for rank in alive:
        rank.kill()
    assert not alive
    assert_resumed(run, ranks, run_mpies)


RAISING = """
import os, gymnasium, numpy as np, mpies.solvers.openai_es
from gymnasium import spaces

on_rank_1 = os.environ["OMPI_COMM_WORLD_RANK"] == "1"

class Raising(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)
    def __init__(self, fault):
        self.fault = fault
        if on_rank_1 and fault == "bug":
            mpies.solvers.openai_es.OpenAIES.compute_weights = lambda *arguments: 1 // 0
    def reset(self, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        if on_rank_1 and self.fault == "exit":
            raise SystemExit("the environment leaves")
        return np.ones(2, np.float32), 1.0, False, False, {}

gymnasium.register("Raising-v0", Raising, max_episode_steps=50)
"""


@pytest.mark.parametrize("fault", ["bug", "exit"])
def test_a_fault_of_one_rank_ends_all_within_seconds(fault, run_mpies, write_config, tmp_path):
    """A bug with its traceback, an environment that exits in one line."""
    (tmp_path / "raising.py").write_text(RAISING)
    environment = f"id: 'raising:Raising-v0', kwargs: {{fault: {fault}}}"
    outcome = run_mpies(3, "train", write_config(ENDLESS.replace("id: CartPole-v1", environment)), timeout=25)
    if fault == "exit":
        assert outcome.code == 2 and "Traceback" not in outcome.stderr
        assert outcome.stderr.count("SystemExit: the environment leaves") == 1
    else:
        assert outcome.code not in (0, 2, 75)
        assert "rank 1" in outcome.stderr and "Traceback" in outcome.stderr and "ZeroDivisionError" in outcome.stderr


def test_four_ranks_hold_one_noise_table(start_mpies, write_config, tmp_path):
    size = 20_000_000
    process = start_mpies(4, "train", write_config(ENDLESS), "--out", "run", f"noise.size={size}")
    wait_for(lambda: len(read_digests(tmp_path / "run")) >= 2, process)
    ranks = ranks_of(process)
    assert len(ranks) == 4

    def held():
        """PSS shares a page among those that map it, so one table in four processes counts once."""
        maps = (entry for rank in ranks for entry in rank.memory_maps(grouped=False))
        return sum(entry.pss for entry in maps if entry.size >= 4 * size) / (4 * size)

    wait_for(lambda: held() > 0.98, process)  # noise is filled when it is first read
    found = held()
    os.kill(ranks[0].pid, signal.SIGTERM)
    process.wait(30)
    assert 0.98 < found < 1.02
