"""One cluster of real daemons for all tests here; make test-slurm runs them."""

import contextlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, missing
from tests.support import HOME, wait_for, write_program


def pytest_configure(config):
    config.addinivalue_line("markers", "slurm: needs root and a Slurm cluster of its own (make test-slurm)")


def pytest_collection_modifyitems(config, items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("slurm")
            if "slurm" not in config.option.markexpr:
                item.add_marker(pytest.mark.skip(reason="make test-slurm runs it"))


@pytest.fixture(scope="session")
def cluster():
    """Three nodes of two processors each."""
    if reason := missing():
        pytest.skip(reason)
    folder = tempfile.mkdtemp(prefix="mpies-slurm-", dir="/var/tmp")
    found = Cluster(folder, nodes=3, cpus=2)
    try:
        found.start()
        yield found
    finally:
        found.stop()
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def mpich(cluster):
    """A virtual environment with this mpies, whose MPI is MPICH: that speaks PMI2, Open MPI 5 PMIx."""
    folder = cluster.folder / "mpich"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [folder / "bin/pip", "install", "--quiet", "--constraint", HOME / "constraints.txt", "mpich"]
    done = subprocess.run(install, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mpich cannot be installed: {done.stderr.splitlines()[-1]}")
    ours = [HOME, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    (Path(sysconfig.get_path("purelib", vars={"base": folder})) / "ours.pth").write_text("\n".join(map(str, ours)))
    write_program(folder / "bin/mpies", f'exec {folder}/bin/python3 -m mpies "$@"')
    return folder


TO_TARGET = """
environment: {id: CartPole-v1}
policy: {hidden: []}
solver: {population: 32, sigma: 0.3, weight_decay: 0.0, optimizer: {learning_rate: 0.1}}
noise: {size: 1000000}
evaluation: {every: 5}
stop: {generations: 200, target: 475}
"""

ENDLESS = """
environment: {id: CartPole-v1, max_steps: 50}
policy: {hidden: [16]}
solver: {population: 24, sigma: 0.1}
noise: {size: 1000000}
evaluation: {every: 0, episodes: 5}
stop: {generations: 1000000}
"""


@dataclass
class Job:
    """A submitted batch job.  folder: where it was submitted and writes its log."""

    cluster: Cluster
    number: str
    folder: Path

    def log(self):
        """What its script and its ranks said, all starts one after the other."""
        return "".join(path.read_text() for path in sorted(self.folder.rglob(f"*-{self.number}*.out")))

    def state(self):
        return self.cluster.job(self.number)["JobState"]

    def restarts(self):
        return int(self.cluster.job(self.number)["Restarts"])

    def minutes(self):
        """How long it has run since its last start, in full minutes."""
        hours, minutes, _ = self.cluster.job(self.number)["RunTime"].split(":")
        return 60 * int(hours) + int(minutes)

    def wait_for(self, condition):
        """Wait until condition() holds."""
        wait_for(condition, seconds=600, pause=0.5, explain=lambda: f"{self.cluster.job(self.number)}\n{self.log()}")

    def is_back_in_the_queue(self):
        """Whether it waits, and Slurm has said for what: before that it may still be ending the last start."""
        found = self.cluster.job(self.number)
        return found["JobState"] == "PENDING" and found["Reason"] != "None"

    def start_again(self, limit=30):
        """Start it now: Slurm lets a job wait for two minutes after it was requeued.  limit: of time, in minutes.

        Nodes refuse what was started in the second in which they ended it, as if that were still meant.
        """
        time.sleep(2)
        self.cluster.run("scontrol", "update", f"JobId={self.number}", "StartTime=now", f"TimeLimit={limit}")

    def finish(self):
        """Wait for its end.  Returns its state."""
        self.wait_for(lambda: self.state() not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING"))
        return self.state()


@pytest.fixture
def submit(cluster):
    """Submit a batch script of slurm/ on 3 nodes x 2 tasks, in a folder with two configs.  Returns its Job.

    options: of sbatch.  environment: variables to set.  `submit.adopt` makes a Job of another's number.
    """
    folder = Path(tempfile.mkdtemp(prefix="job-", dir=cluster.folder))
    (folder / "pole.yaml").write_text(TO_TARGET)
    (folder / "endless.yaml").write_text(ENDLESS)
    jobs = []

    def run(script, *arguments, options=(), environment=None):
        size = ["--nodes=3", "--ntasks=6", "--mem=1G", "--time=30"]
        command = ["sbatch", "--parsable", *size, *options, HOME / "slurm" / script, *arguments]
        return adopt(cluster.run(*command, cwd=folder, env=cluster.environment | (environment or {})).strip())

    def adopt(number):
        jobs.append(Job(cluster, number, folder))
        return jobs[-1]

    run.folder, run.adopt = folder, adopt
    yield run
    for job in jobs:
        with contextlib.suppress(RuntimeError):  # it may wait too long for a node; the job is cancelled all the same
            cluster.run("scancel", job.number)
    for job in jobs:
        job.wait_for(lambda job=job: not cluster.run("squeue", "--noheader", f"--jobs={job.number}").strip())


def launcher(job):
    """What the job says it starts its ranks with, at each start."""
    return re.findall(r"starting .* ranks on .* by (mpirun|srun --mpi=\w+)", job.log())
