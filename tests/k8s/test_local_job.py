"""The workstation overlay, run as the operator would run it: the project's image, a launcher, two workers with sshd.

Whatever is lost on the way, the run comes to the digests of an undisturbed one on this machine.
"""

import contextlib
import json
import os
import subprocess
import time
import urllib.request

import pytest
import yaml

from mpies.runs.formats.metrics import read_digests, read_metrics
from tests.k8s.conftest import one, rendered
from tests.k8s.local_job import LocalJob, podman, run
from tests.support import HOME, train, wait_for

pytestmark = pytest.mark.k8s


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Digests of the overlay's run on this machine without any container."""
    config = (HOME / "configs/cartpole.yaml").read_text()
    return read_digests(train(tmp_path_factory.mktemp("workstation"), config))


@pytest.fixture
def start_job(image, tmp_path_factory):
    """A LocalJob of the workstation overlay, already entered.  env: variables of the launcher to change."""
    jobs = contextlib.ExitStack()

    def start(**env):
        documents = yaml.safe_load(json.dumps(rendered("workstation")))
        container = one(documents, "MPIJob")["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
        container["env"] = [entry for entry in container["env"] if entry["name"] not in env]
        container["env"] += [{"name": name, "value": value} for name, value in env.items()]
        folder = tmp_path_factory.mktemp("job")
        for path in (folder.parent.parent, folder.parent, folder):
            path.chmod(0o755)  # pods are another user
        (folder / "pods").mkdir(mode=0o755)
        return jobs.enter_context(LocalJob(documents, folder / "pods"))

    with jobs:
        yield start


def wait_for_generation(job, number):
    """Until the run has so many generations on disk."""
    path, log = job.claim("mpies-runs") / "cartpole", job.folder / "launcher.log"
    wait_for(lambda: len(read_metrics(path)) >= number, seconds=600, pause=0.05, explain=log.read_text)


def assert_complete(job, expected):
    path = job.claim("mpies-runs") / "cartpole"
    assert yaml.safe_load((path / "finished.yaml").read_text())["reason"] == "solved", job.log
    assert read_digests(path) == expected


def test_the_image_is_small_and_not_root(image):
    """What it holds at most, unpacked; a base of Debian 12 included."""
    assert image < 1.25e9  # bytes
    limits = ["--cgroups=disabled", "--ulimit=nproc=4096:4096", "--ulimit=nofile=4096:4096"]
    command = "mpies", "sh", "-c", "id -u; mpies --version; ls /opt/mpies/bin"
    done = run(*podman("run", "--rm", "--network=none", *limits, *command), check=False)
    assert done.stdout.startswith("1000\n") and "mpies, version" in done.stdout
    assert "pip" not in done.stdout.split()


def test_workers_train_to_the_target_with_the_workstations_digests(start_job, undisturbed):
    job = start_job(MPIES_LOG="json")
    assert job.run() == 0, job.log
    assert job.attempts == [0]
    assert_complete(job, undisturbed)
    assert "starting 2 ranks on 2 nodes by mpirun" in job.log
    assert {row["nodes"] for row in read_metrics(job.claim("mpies-runs") / "cartpole")} == {"2"}
    entries = [json.loads(line) for line in job.log.splitlines() if line.startswith('{"severity"')]
    assert [entry["generation"] for entry in entries if "generation" in entry] == list(range(1, len(undisturbed) + 1))
    assert [(entry["severity"], entry["reason"]) for entry in entries if "reason" in entry] == [("INFO", "solved")]


def lose_both_workers(job):
    """The launcher waits until there is one again."""
    for worker in job.workers:
        job.kill(worker)
    time.sleep(5)
    job.start_worker(job.workers[1])


KILL_RANKS = """
import os, pathlib, signal
for folder in pathlib.Path("/proc").glob("[0-9]*"):
    words = (folder / "cmdline").read_bytes().split(b"\\0")
    if b"train" in words and b"python" in words[0]:
        os.kill(int(folder.name), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("disturb", "attempts", "words"),
    [
        # The launcher goes on without it; it need not be started again.
        (lambda job: job.kill(job.workers[0]), [0], ["the loss of mpies-worker-0", "continuing from generation"]),
        (lambda job: job.kill(job.workers[1], True), [0], ["the loss of mpies-worker-1", "continuing from generation"]),
        (lose_both_workers, [0], ["starting 1 rank on 1 node"]),
        # A lost rank is survived with ULFM.
        (lambda job: job.execute(job.workers[1], "python3", "-c", KILL_RANKS), [0], ["training continues on 1 rank"]),
        # SIGTERM to the launcher's pod, as before any eviction: nothing is played twice.
        (
            lambda job: run(*podman("kill", "--signal", "TERM", job.launcher)),
            [75, 0],
            ["stopped by a signal after generation"],
        ),
    ],
)
def test_a_run_goes_on_to_the_same_bits_whatever_is_lost(disturb, attempts, words, start_job, undisturbed):
    job = start_job()
    assert job.run(lambda job: (wait_for_generation(job, 3), disturb(job))) == 0, job.log
    assert job.attempts == attempts and all(word in job.log for word in words), job.log
    assert_complete(job, undisturbed)


def test_a_launcher_killed_at_once_leaves_nothing_that_stops_the_next(start_job, undisturbed):
    """The next one is in the same pod: its mpirun has the numbers of the dead one, whose folders are in /tmp still.

    A mpirun that does not begin for that reason is started again, without its folder.
    """
    job = start_job()

    def kill_the_launcher(job):
        wait_for_generation(job, 3)
        job.kill(job.launcher)
        for tmp in job.folder.glob("empty/*/tmp"):
            for number in range(2000):
                left = tmp / f"ompi.{number}"
                if not left.exists():
                    left.mkdir()
                    os.chown(left, 1000, 1000)

    assert job.run(kill_the_launcher) == 0, job.log
    assert len(job.attempts) == 2
    assert_complete(job, undisturbed)


def test_the_doctor_finds_a_worker_fit(start_job):
    job = start_job()
    said = job.execute(job.workers[0], "mpies", "doctor", "/configs/cartpole.yaml", "--out", "/runs").stdout
    levels = {line[6:20].strip(): line[:4].strip() for line in said.splitlines()}
    assert "place           pod on" in said
    assert set(levels.values()) <= {"ok", "note"}, said
    assert {"MPI", "mpiexec", "shared memory", "memory", "processors", "clock"} <= levels.keys()


def test_the_dashboard_follows_a_run_and_hands_out_copies(start_job, undisturbed, tmp_path):
    """The Deployment's pod, which may only read the volume, while the run goes on and after it."""
    job = start_job()
    name = "mpies-dashboard"
    job.claim("mpies-runs")
    job.start_deployment(name)

    def ask(path):
        token = run(*podman("logs", name), check=False).stdout.rpartition("/?")[2].strip()
        with urllib.request.urlopen(f"http://{job.addresses[name]}:8050{path}?{token}", timeout=10) as answer:
            return answer.read().decode()

    def is_listed():
        with contextlib.suppress(OSError):
            runs = json.loads(ask("/api/runs"))
            if runs and runs[0].get("generation"):
                assert [run["name"] for run in runs] == ["cartpole"] and runs[0]["state"] in ("running", "finished")
                return True

    def told():
        return run(*podman("logs", name), check=False).stderr

    # The list has the run while it is under way.
    assert job.run(lambda _: wait_for(is_listed, seconds=600, pause=0.25, explain=told)) == 0, job.log
    assert "<title>" in ask("/") and "mpies" in ask("/page.js")
    (shown,) = json.loads(ask("/api/runs"))
    assert (shown["state"], shown["generation"]) == ("finished", len(undisturbed))
    assert "Read-only file system" in job.execute(name, "sh", "-c", "touch /runs/x 2>&1 || true").stdout
    archive = tmp_path / "runs.tar"

    def is_copied():
        """As kubectl cp does it; tar refuses while a picture of the run, which has ended, is still written."""
        tar = podman("exec", name, "tar", "cf", "-", "-C", "/", "runs")
        with open(archive, "wb") as file:
            return subprocess.run(tar, stdout=file).returncode == 0

    wait_for(is_copied, seconds=60)
    run("tar", "xf", archive, "-C", tmp_path)
    assert read_digests(tmp_path / "runs/cartpole") == undisturbed
