"""Signals and deaths under mpiexec: nothing is lost and nothing hangs."""

import os
import signal

import psutil
import pytest

from mpies.runs.formats.checkpoint import newest_checkpoint
from mpies.runs.formats.metrics import read_digests
from tests.support import ENDLESS, ULFM, mpiexec_or_skip, ranks_of, wait_for


@pytest.mark.parametrize(
    ("whom", "number", "ranks", "code", "flags"),
    [
        ("mpiexec", signal.SIGUSR1, 0, 75, ()),
        ("rank 1", signal.SIGTERM, 3, 75, ()),
        ("mpiexec", signal.SIGKILL, 0, None, ULFM),
        ("rank 0", signal.SIGKILL, 0, None, ()),
    ],
)
def test_a_signal_ends_all_ranks_and_what_is_on_disk_goes_on(
    whom, number, ranks, code, flags, start_mpies, run_mpies, write_config, tmp_path
):
    mpiexec_or_skip(has_ulfm=bool(flags))
    run = tmp_path / "run"
    process = start_mpies(2, "train", write_config(ENDLESS), "--out", "run", flags=flags)
    wait_for(lambda: len(read_digests(run)) >= 3, process)
    started = ranks_of(process)
    os.kill(process.pid if whom == "mpiexec" else started[int(whom[-1])].pid, number)
    ended = process.wait(30)
    assert ended == code if code else ended != 0
    alive = psutil.wait_procs(started, timeout=8)[1]
    for rank in alive:
        rank.kill()
    assert not alive
    made = len(read_digests(run))
    if code:  # with a checkpoint
        assert newest_checkpoint(run, print)[1]["generation"] == made
    train = "train", "config.yaml", f"stop.generations={made + 3}", "--out"
    run_mpies(ranks, *train, "run", "--resume", "must", code=0)
    run_mpies(0, *train, "undisturbed", code=0)
    assert read_digests(run) == read_digests(tmp_path / "undisturbed")


RAISING = """
import os, mpies.solvers.openai_es
from tests.envs.misbehaving import Good
on_rank_1 = os.environ["OMPI_COMM_WORLD_RANK"] == "1"
class Raising(Good):
    def __init__(self, fault):
        self.fault = fault
        if on_rank_1 and fault == "bug":
            mpies.solvers.openai_es.OpenAIES.compute_weights = lambda *arguments: 1 // 0
    def step(self, action):
        if on_rank_1 and self.fault == "exit":
            raise SystemExit("the environment leaves")
        return super().step(action)
"""


@pytest.mark.parametrize("fault", ["bug", "exit"])
def test_a_fault_of_one_rank_ends_all_within_seconds(fault, run_mpies, write_config, tmp_path):
    """A bug with its traceback, an environment that exits in one line."""
    (tmp_path / "raising.py").write_text(RAISING)
    environment = f"id: 'raising.py:Raising', kwargs: {{fault: {fault}}}"
    outcome = run_mpies(3, "train", write_config(ENDLESS.replace("id: CartPole-v1", environment)), timeout=25)
    if fault == "exit":
        assert outcome.code == 2 and "Traceback" not in outcome.stderr
        assert outcome.stderr.count("SystemExit: the environment leaves") == 1
    else:
        assert outcome.code not in (0, 2, 75)
        assert "rank 1" in outcome.stderr and "Traceback" in outcome.stderr and "ZeroDivisionError" in outcome.stderr
