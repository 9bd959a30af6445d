"""Contracts 2 and 3 under mpiexec: nothing lost, no silent hang; and one noise table per node."""

from mpies.runs.checkpoint import newest_checkpoint
from mpies.runs.metrics import read_metrics
import os
import signal
import time

import psutil
import pytest


ENDLESS = """
environment: {id: CartPole-v1, max_steps: 60}
policy: {hidden: [8]}
solver: {population: 16, sigma: 0.1}
noise: {size: 100000}
evaluation: {every: 0, episodes: 5}
checkpoint: {every: 2, share: 1}
stop: {generations: 1000000}
"""


def digests(run):
    return [row["digest"] for row in read_metrics(run)]


def ranks_of(process):
    """The ranks below a running mpiexec, in order of rank."""
    ranks = [child for child in psutil.Process(process.pid).children(recursive=True) if "mpies" in child.cmdline()]
    ranks = [child for child in ranks if "OMPI_COMM_WORLD_RANK" in child.environ()]
    return sorted(ranks, key=lambda child: int(child.environ()["OMPI_COMM_WORLD_RANK"]))


def wait_for(condition, process, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[1][-3000:]
        assert time.monotonic() < until, "it did not come about in time"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("whom", "number"),
    # On SIGTERM Open MPI's mpiexec ends with a code of its own; what is then on disk is tested below.
    [("mpiexec", signal.SIGUSR1), ("rank 0", signal.SIGUSR1), ("rank 1", signal.SIGTERM)],
)
def test_a_signal_ends_with_a_checkpoint_and_code_75_and_the_run_goes_on(
    whom, number, start_mpies, run_mpies, write_config, tmp_path
):
    config, run = write_config(ENDLESS), tmp_path / "run"
    process = start_mpies(2, "train", config, "--out", "run")
    wait_for(lambda: len(digests(run)) >= 3, process)
    os.kill(process.pid if whom == "mpiexec" else ranks_of(process)[int(whom[-1])].pid, number)
    assert process.wait(30) == 75
    made = len(digests(run))
    assert newest_checkpoint(run, print)[1]["generation"] == made
    ended = run_mpies(3, "train", config, "--out", "run", "--resume", "must", f"stop.generations={made + 3}")
    assert ended.code == 0, ended.stderr[-3000:]
    assert run_mpies(0, "train", config, "--out", "whole", f"stop.generations={made + 3}").code == 0
    assert digests(run) == digests(tmp_path / "whole")


@pytest.mark.parametrize(
    ("victim", "number"), [("mpiexec", signal.SIGTERM), ("mpiexec", signal.SIGKILL), ("rank 1", signal.SIGKILL)]
)
def test_a_killed_process_loses_nothing_that_was_on_disk(
    victim, number, start_mpies, run_mpies, write_config, tmp_path
):
    config, run = write_config(ENDLESS), tmp_path / "run"
    process = start_mpies(2, "train", config, "--out", "run")
    wait_for(lambda: len(digests(run)) >= 5, process)
    ranks = ranks_of(process)
    os.kill(process.pid if victim == "mpiexec" else ranks[int(victim[-1])].pid, number)
    assert process.wait(30) != 0
    alive = psutil.wait_procs(ranks, timeout=10)[1]
    for rank in alive:
        rank.kill()
    assert not alive
    made = len(digests(run))
    ended = run_mpies(2, "train", config, "--out", "run", "--resume", "must", f"stop.generations={made + 3}")
    assert ended.code == 0, ended.stderr[-3000:]
    assert run_mpies(0, "train", config, "--out", "whole", f"stop.generations={made + 3}").code == 0
    assert digests(run) == digests(tmp_path / "whole")


RAISING = """
import os, gymnasium, numpy as np, solvers.openai_es
from gymnasium import spaces

on_rank_1 = os.environ["OMPI_COMM_WORLD_RANK"] == "1"

class Raising(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)
    def __init__(self, fault):
        self.fault = fault
        if on_rank_1 and fault == "bug":
            solvers.openai_es.OpenAIES.weigh = lambda *arguments: 1 // 0
    def reset(self, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        if on_rank_1 and self.fault == "exit":
            raise SystemExit("the environment leaves")
        return np.ones(2, np.float32), 1.0, False, False, {}

gymnasium.register("Raising-v0", Raising, max_episode_steps=50)
"""


@pytest.mark.parametrize(("fault", "message"), [("bug", "ZeroDivisionError"), ("exit", "the environment leaves")])
def test_a_rank_that_raises_ends_the_job_within_seconds_with_its_traceback(
    fault, message, run_mpies, write_config, tmp_path
):
    (tmp_path / "raising.py").write_text(RAISING)
    environment = f"id: 'raising:Raising-v0', kwargs: {{fault: {fault}}}"
    ended = run_mpies(3, "train", write_config(ENDLESS.replace("id: CartPole-v1", environment)), timeout=25)
    assert ended.code not in (0, 2, 75)
    assert "rank 1" in ended.stderr and "Traceback" in ended.stderr and message in ended.stderr


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_users_mistake_is_one_line_whatever_the_ranks(ranks, run_mpies, write_config):
    ended = run_mpies(ranks, "train", write_config(ENDLESS), "--out", "run", "solver.population=7")
    assert ended.code == 2
    assert ended.stderr.count("solver.population must be even (antithetic pairs), but is 7; use 6 or 8") == 1
    assert "Traceback" not in ended.stderr


def test_four_ranks_hold_one_noise_table(start_mpies, write_config, tmp_path):
    size = 20_000_000
    process = start_mpies(4, "train", write_config(ENDLESS), "--out", "run", f"noise.size={size}")
    wait_for(lambda: len(digests(tmp_path / "run")) >= 2, process)
    ranks = ranks_of(process)
    assert len(ranks) == 4
    # PSS shares a page among those that map it, so one table in four processes counts once.
    tables = [entry.pss for rank in ranks for entry in rank.memory_maps(grouped=False) if entry.size >= 4 * size]
    os.kill(ranks[0].pid, signal.SIGTERM)
    process.wait(30)
    assert 0.98 * 4 * size < sum(tables) < 1.02 * 4 * size, f"{sum(tables) / 1e6:.0f} MB for {4 * size / 1e6:.0f} MB"
