"""A job that loses ranks goes on, to the same bits (`mpirun --with-ft ulfm`)."""

import subprocess
import sys

import pytest

from mpies.comm import mpiexec
from mpies.runs.formats.metrics import read_digests, read_metrics
from tests.support import ULFM, mpiexec_or_skip, ranks_of, wait_for

POLICY = """
environment: {id: CartPole-v1, max_steps: 50}
policy: {hidden: [16]}
noise: {size: 100000}
evaluation: {every: 9, episodes: 10}
checkpoint: {every: 5}
stop: {generations: 60}
"""
FUNCTION = """
environment: {id: "function:rastrigin", dimension: 300, shift: 1}
noise: {size: 100000}
evaluation: {every: 9}
checkpoint: {every: 5}
stop: {generations: 150}
"""
CONFIGS = {
    "noise table": POLICY + "solver: {population: 32, sigma: 0.1}\n",
    "overlap": POLICY + "solver: {kind: pepg, population: 32}\noverlap: 1\n",
    "chains of seeds": FUNCTION + "solver: {kind: deep_ga, population: 30, parents: 5, snapshot: 4, sigma: 0.1}\n",
}

# A rank that is still in a repair takes the next one as a part of it.  So all have ended one before the next begins.
FALSE_ALARMS = """
from mpi4py import MPI

import mpies.comm.mpi as mpi

comm, apart = mpi.MPICommunicator(), MPI.COMM_WORLD.Dup()
mpi.FALSE_ALARMS_WITHIN = 0
for _ in range(4):
    assert comm.repair() == "" and comm.size == 3
    apart.Barrier()
mpi.FALSE_ALARMS_WITHIN = 60
assert comm.repair() == ""
apart.Barrier()
try:
    comm.repair()
except RuntimeError as error:
    print(error)
comm.node_barrier()
"""


@pytest.fixture(scope="module", autouse=True)
def _survivable():
    mpiexec_or_skip(has_ulfm=True)


# Rank 0 is behind on disk: the others have begun a generation after the one at which the new rank 0 goes on.
SLOW_DISK = """
import sys
from mpies.cli.main import main
from mpies.runs import writer
writer.DELAY = 5
main(sys.argv[2:])
"""


@pytest.mark.parametrize(
    ("name", "ranks", "victims", "program"),
    [
        ("noise table", 4, [0, 3], ("-m", "mpies")),
        ("overlap", 3, [0], ("-c", SLOW_DISK, "mpies")),
        ("chains of seeds", 3, [0], ("-m", "mpies")),
    ],
)
def test_a_job_that_loses_ranks_finishes_with_the_same_bits(
    name, ranks, victims, program, digests_of, start_mpies, write_config, tmp_path
):
    expected, run = digests_of(CONFIGS[name]), tmp_path / "run"
    job = start_mpies(ranks, "train", write_config(CONFIGS[name]), "--out", "run", flags=ULFM, program=program)
    wait_for(lambda: len(read_digests(run)) >= 2, job)
    killed = [ranks_of(job)[victim] for victim in victims]
    for rank in killed:
        rank.kill()
    stderr = job.communicate(timeout=300)[1]
    assert (run / "finished.yaml").exists(), stderr[-3000:]
    assert read_digests(run) == expected
    assert {row["ranks"] for row in read_metrics(run)} >= {str(ranks), str(ranks - len(victims))}
    for rank in killed:
        assert f"process {rank.pid} on " in stderr
    assert 1 <= stderr.count(": lost process ") == stderr.count("WARNING rank ") <= len(victims)
    assert "Traceback" not in stderr


def test_false_alarms_of_the_failure_detector_end_a_job_only_if_three_come_within_a_minute():
    command = [mpiexec.find(), *ULFM, "-n", "3", sys.executable, "-m", "mpi4py", "-c", FALSE_ALARMS]
    job = subprocess.run(command, env=mpiexec.environment(), capture_output=True, text=True, timeout=300)
    assert job.returncode == 0, job.stderr
    assert job.stdout == 3 * "MPI failed three times within 60 s, and no rank was lost\n"
