"""Which start follows which, and what is watched meanwhile: scripts of the shell stand for ranks."""

import os
import signal
import socket
import tempfile
import threading
from pathlib import Path

import pytest

from mpies.comm.processes import process_start
from mpies.core.errors import FAILED, FINISHED, REQUEUE
from mpies.launch import placement as placement_module
from mpies.launch.goal import RunsFinished, Start
from mpies.launch.hosts import Host, Where
from mpies.launch.placement import TooFewHosts
from mpies.launch.ranks import watches
from mpies.launch.ranks.launcher import Launcher
from mpies.launch.ranks.watches import StartWatch
from mpies.launch.supervisor import FRUITLESS, Supervisor
from mpies.runs.formats.metrics import read_metrics
from tests.support import wait_for, write_program

HERE = socket.gethostname()  # another name of localhost, which stands for another host
SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGUSR1
AWAY = "localhost:1,not-there.invalid:1"
NOTING = f"echo started >> notes; exit {FAILED}"


class Script(Launcher):
    """Runs a script of the shell in place of ranks, which may use `lock RUN`, `row RUN G` and $ranks."""

    FUNCTIONS = """
    lock() { mkdir -p $1; echo "{\\"job\\": \\"$MPIES_JOB.1\\", \\"token\\": \\"$$\\"}" > $1/writer.json; }
    row() { test -s $1/metrics.csv || echo generation,seconds,steps,ranks,starts > $1/metrics.csv
            echo $2,$2,$2,$ranks,$starts >> $1/metrics.csv; }
    """

    def __init__(self, script):
        self._script = script

    def start_command(self, hosts, ranks, variables):
        return ["bash", "-c", f"ranks={ranks}\n{self.FUNCTIONS}\n{self._script}", "--"]


@pytest.fixture
def supervise(here):
    """Make a Supervisor of a script on 2 ranks, whose goal is to finish the run `run`; the folder is current."""

    def supervise(script, hosts=None, runs=("run",), words=("train",), ranks=2, **options):
        goal = RunsFinished([here / run for run in runs])
        return Supervisor([*words], ranks, goal, Where(hosts, **options), Script(script))

    return supervise


@pytest.mark.parametrize(("hosts", "starts"), [("localhost:2", 1), (AWAY, 1 + FRUITLESS)])
def test_a_job_gives_up_after_starts_that_made_no_generation(hosts, starts, supervise, tmp_path, capfd):
    """With several hosts they are tried again a few times, as a host may have been away."""
    assert supervise(NOTING, hosts).run() == FAILED
    assert (tmp_path / "notes").read_text().count("started") == starts
    assert capfd.readouterr().err.count("WARNING supervisor: an unexpected end") == starts - 1


@pytest.mark.parametrize("restarts", [0, 2])
def test_ranks_are_started_again_as_often_as_allowed_and_a_signals_number_is_in_the_code(restarts, supervise, capfd):
    script = "lock run; starts=1; made=`wc -l < run/metrics.csv || echo 1`; row run $made; kill -KILL $$"
    assert supervise(script, restarts=restarts).run() == FAILED
    said = capfd.readouterr().err
    for number in range(1, restarts + 1):
        assert f"an unexpected end (code 137) after generation {number}: restart {number} of {restarts}" in said
    assert ("more than --restarts times" in said) == (restarts > 0)
    assert len(read_metrics(Path("run"))) == 1 + restarts


def test_an_mpirun_that_was_killed_is_mentioned_and_its_folder_removed(supervise, tmp_path, monkeypatch, capfd):
    """Open MPI refuses to start where it is still there when another mpirun has the same process number."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert supervise("mkdir ompi.$$ && touch ompi.$$/made made; kill -KILL $$").run() == FAILED
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    assert "ERROR supervisor: the ranks ended after generation 0, and the run is not complete" in capfd.readouterr().err


def test_a_hostfile_that_cannot_be_read_for_a_moment_does_not_end_the_job(supervise, tmp_path, monkeypatch, capfd):
    """Its program fails every second time after the first two, as one that asks a busy server may do."""
    monkeypatch.setattr(placement_module, "AGAIN", 0.05)
    program = write_program(
        tmp_path / "discover_hosts.sh",
        f"echo >> {tmp_path}/asked\nasked=`wc -l < {tmp_path}/asked`\n"
        'test $asked -gt 2 && test $((asked % 2)) = 0 && { echo "no answer from the server" >&2; exit 1; }\n'
        f"echo localhost slots=1\necho {HERE} slots=1",
    )
    assert supervise(NOTING, hostfile=program, wait=5.0).run() == FAILED
    assert (tmp_path / "notes").read_text().count("started") == 1 + FRUITLESS
    assert "no answer" not in capfd.readouterr().err


def test_a_seed_that_has_come_less_far_than_the_one_before_it_is_progress(supervise, capfd):
    script = """
    test -s a/metrics.csv || { lock a; for n in `seq 9`; do row a $n; done; exit 1; }; touch a/finished.yaml
    test -s b/metrics.csv || { lock b; for n in `seq 3`; do row b $n; done; exit 1; }; touch b/finished.yaml
    """
    assert supervise(script, runs=("a", "b")).run() == FINISHED
    said = capfd.readouterr().err
    assert "after generation 9: restart 1 of 100" in said and "after generation 3: restart 2 of 100" in said


def test_a_signal_while_hosts_are_waited_for_ends_the_job_as_a_stop(supervise, tmp_path):
    """Without a signal it is an error that too few hosts answer."""
    waiting, hasty = (supervise(NOTING, AWAY, min_ranks=2, wait=wait) for wait in (600.0, 0.0))
    threading.Timer(0.5, waiting.stop).start()
    assert waiting.run() == REQUEUE
    with pytest.raises(TooFewHosts, match=r"1 of 2 hosts answer, with 1 slots, but --min-ranks is 2"):
        hasty.run()
    assert not (tmp_path / "notes").exists()


@pytest.mark.parametrize("ranks", [4, 5])
def test_a_crowd_of_ranks_is_named_although_a_signal_lets_none_start(ranks, supervise, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    supervisor = supervise(NOTING, None, ranks=ranks)
    supervisor.stop()
    assert supervisor.run() == REQUEUE and not (tmp_path / "notes").exists()
    said = "WARNING supervisor: 5 ranks share 1 processor: that is slower than a rank for each; --ranks auto starts 1\n"
    assert capfd.readouterr().err == (said if ranks == 5 else "")


def test_ranks_that_nobody_can_follow_any_more_are_ended(tmp_path):
    """As where the disk with the runs is taken away."""
    notes = tmp_path / "notes"

    class Gone(RunsFinished):
        def refresh(self):
            self.runs = []
            if notes.exists() and notes.read_text():
                raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        Supervisor(["train"], 2, Gone([]), launcher=Script(f"echo $$ > {notes}; exec sleep 60")).run()
    assert process_start(int(notes.read_text())) is None


def test_a_job_grows_in_a_later_seed_however_far_the_one_before_it_came(supervise, tmp_path, monkeypatch, capfd):
    """The first seed is lost after generation 50.  In the second the other host comes."""
    monkeypatch.setattr(watches, "LOOK", 0.2)
    script = """
    trap 'exit 75' USR1
    lock a
    test -e lost || { starts=1; for n in `seq 50`; do row a $n; done; touch lost; exit 1; }
    starts=2; row a 51; sleep .5; touch a/finished.yaml; lock b
    test $ranks = 2 && { starts=2; row b 4; touch b/finished.yaml; exit 0; }
    starts=1; for n in 1 2 3; do row b $n; done; touch ready
    for n in `seq 100`; do sleep .1; done; exit 2
    """
    hosts = write_program(tmp_path / "hosts", f"echo localhost:1; test ! -e {tmp_path}/ready || echo {HERE}:1")
    assert supervise(script, hostfile=hosts, runs=("a", "b"), ranks=None).run() == 0
    assert f"starting 2 ranks on 2 nodes by mpirun after the return of {HERE}" in capfd.readouterr().err


def test_ranks_that_write_nothing_yet_are_ended_at_once_although_another_job_writes(supervise, tmp_path):
    """As of a sweep that two jobs train: the locks of the other one's groups change all the time."""
    script = """
    trap 'touch asked' USR1
    for n in `seq 50`; do MPIES_JOB=other lock $((n % 2)); test $n = 5 && touch ready; sleep .1 & wait; done
    """
    supervisor, codes = supervise(script, runs=("0", "1"), words=("sweep",)), []
    before = {number: signal.getsignal(number) for number in SIGNALS}, dict(os.environ)
    thread = threading.Thread(target=lambda: codes.append(supervisor.run()))
    thread.start()
    wait_for((tmp_path / "ready").exists)
    supervisor.stop()
    thread.join(60)
    assert codes == [75] and not (tmp_path / "asked").exists()
    assert ({number: signal.getsignal(number) for number in SIGNALS}, dict(os.environ)) == before


def test_only_the_choice_of_resume_changes_when_ranks_are_started_again(supervise, tmp_path):
    script = 'echo "$@" >> words; test -e run || { lock run; starts=1; row run 1; exit 1; }; touch run/finished.yaml'
    words = ["train", "--out", "never", "--resume", "never", "--", "never"]
    assert supervise(script, words=words).run() == 0
    first, second = (tmp_path / "words").read_text().splitlines()
    assert first.endswith("train --out never --resume never -- never")
    assert second.endswith("train --out never --resume auto -- never")


def test_a_run_is_finished_by_a_new_marker_only(tmp_path):
    goal = RunsFinished([tmp_path])
    (tmp_path / "finished.yaml").write_text("reason: solved\n")
    assert goal.is_finished_since({}) and not goal.is_finished_since(goal.finished())


def test_a_sweep_whose_sampler_has_proposed_more_has_not_come_to_its_end(monkeypatch, tmp_path):
    """The runs of the first batch are finished and nobody writes them; those of the second are being written."""
    monkeypatch.setattr(watches, "LOOK", 0.0)
    monkeypatch.setattr(watches, "TEARDOWN", 0.0)
    runs = []
    goal = RunsFinished(runs)
    start = Start(goal, [Host("localhost", 2)], 2)
    watch = StartWatch(None, goal, start, None)
    for number in (1, 2):
        runs.append(tmp_path / f"batch-{number}")
        runs[-1].mkdir()
        (runs[-1] / "writer.json").write_text(f'{{"job": "{goal.job}.1", "token": "{number}"}}')
        assert not start.look() and start.is_writing and not watch.has_hung(is_asked=False)
        (runs[-1] / "writer.json").unlink()
        assert not watch.has_hung(is_asked=False)
        (runs[-1] / "finished.yaml").write_text("reason: solved\n")
    assert watch.has_hung(is_asked=False)
