"""One writer to a run directory: who is refused, who takes over, and who wins of several at once."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time

import pytest

from mpies.core.errors import RunLocked
from mpies.runs import lock
from mpies.runs.lock import HEARTBEAT, STALE, Lock, is_alive, is_owner
from tests.support import ENDLESS, assert_refused, wait_for

HOLDER = """
import sys
from mpies.runs.lock import Lock
Lock(sys.argv[1]).acquire()
print("held", flush=True)
sys.stdin.read()
"""

NO_BEAT = json.dumps(dict.fromkeys(["job", "token", "host", "pid", "start", "boot", "namespace", "beat"], "x"))


@contextlib.contextmanager
def running(program, *arguments, inside=()):
    """A process of Python that runs this program; inside: the command that it is started by."""
    command = [*inside, sys.executable, "-c", program, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of tmp_path until its standard input is closed."""
    with running(HOLDER, tmp_path) as process:
        assert process.stdout.readline() == "held\n"
        yield process


@pytest.fixture
def quick(monkeypatch):
    """Heartbeats come every 20 ms."""
    monkeypatch.setattr(lock, "HEARTBEAT", 0.02)


def owner(path):
    return json.loads((path / "writer.json").read_text())


def edit(path, **values):
    """Change values of the owner in the lock file."""
    kept = {name: value for name, value in owner(path).items() if name != "crc32"}  # as older ones are
    (path / "writer.json").write_text(json.dumps(kept | values))


def test_while_a_writer_lives_another_is_refused_with_its_host_process_and_heartbeat_also_behind_damage(
    holder, tmp_path
):
    with pytest.raises(RunLocked) as refusal:
        Lock(tmp_path).acquire()
    message = str(refusal.value)
    assert "\n" not in message and message.startswith(f"{tmp_path}: is being written by process {holder.pid}")
    assert f"on {socket.gethostname()}" in message and "choose another --out" in message
    assert int(re.search(r"last heartbeat was (\d+) s ago", message)[1]) <= 2 * HEARTBEAT + 5
    assert owner(tmp_path)["pid"] == holder.pid
    (tmp_path / "writer.json").write_text((tmp_path / "writer.json").read_text().replace('"pid": ', '"pid": 9'))
    with pytest.raises(RunLocked, match=f"is being written by process {holder.pid} "):  # which has written it again
        Lock(tmp_path).acquire()


@pytest.mark.parametrize("now", ["gone", "zombie", "another"])
def test_the_lock_of_a_process_that_has_ended_is_taken_over(now, holder, tmp_path):
    """now: what has its number."""
    if now == "another":
        edit(tmp_path, start=owner(tmp_path)["start"] - 1)
    else:
        holder.kill()
    if now == "zombie":
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)  # its parent has not collected it
    elif now == "gone":
        holder.wait()
    Lock(tmp_path).acquire()
    assert owner(tmp_path)["pid"] == os.getpid()


@pytest.mark.parametrize("elsewhere", [{"host": "node17"}, {"boot": "before the crash"}, {"namespace": "pid:[7]"}])
def test_a_writer_on_another_host_counts_as_dead_only_after_a_time_without_heartbeat(elsewhere, holder, tmp_path):
    holder.kill()
    holder.wait()
    edit(tmp_path, **elsewhere, beat=time.time() - 7)
    host = elsewhere.get("host", socket.gethostname())
    with pytest.raises(RunLocked, match=f"on {host}, .* heartbeat was [78] s ago"):
        Lock(tmp_path).acquire()
    edit(tmp_path, beat=time.time() + 3600)  # by a clock that is ahead
    with pytest.raises(RunLocked, match="last heartbeat was 0 s ago; "):
        Lock(tmp_path).acquire()
    edit(tmp_path, beat=time.time() - STALE - 1)
    Lock(tmp_path).acquire()
    assert owner(tmp_path)["pid"] == os.getpid()


def test_a_writer_in_another_container_of_this_host_is_alive(tmp_path):
    """Its process number is that of another process here, or of none."""
    space = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() or subprocess.run([*space, "true"], capture_output=True).returncode:
        pytest.skip("only root can start a process in a namespace of its own")
    with running(HOLDER, tmp_path, inside=space) as process:
        assert process.stdout.readline() == "held\n" and owner(tmp_path)["host"] == socket.gethostname()
        with pytest.raises(RunLocked, match="is being written by process"):
            Lock(tmp_path).acquire()


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"token": "x"', "\0\0", NO_BEAT])
def test_a_damaged_lock_file_locks_nothing(content, tmp_path, quick):
    (tmp_path / "writer.json").write_text(content)
    Lock(tmp_path).acquire()
    assert owner(tmp_path)["pid"] == os.getpid()


def test_a_lock_that_the_disk_keeps_ends_no_command(tmp_path, monkeypatch):
    held = Lock(tmp_path)
    held.acquire()
    monkeypatch.setattr(type(held.file), "unlink", lambda *_, **__: os.stat("/none"))
    held.release()
    assert not held.is_held
    assert not is_alive(owner(tmp_path)), "a sweep would wait for itself"


def test_a_writer_that_was_taken_over_notices_and_writes_no_more(quick, tmp_path):
    first, second = Lock(tmp_path), Lock(tmp_path)
    first.acquire()
    beat = owner(tmp_path)["beat"]
    wait_for(lambda: owner(tmp_path)["beat"] > beat)
    first.check()
    second._write()
    wait_for(lambda: not first.is_held)
    time.sleep(0.1)
    with pytest.raises(RunLocked, match=f"was taken over by process {os.getpid()} on {socket.gethostname()}"):
        first.check()
    taken = owner(tmp_path)
    assert taken["token"] == second._owner["token"]
    assert is_owner(taken) and not is_owner({"pid": 1}) and not is_owner([]) and not is_owner(None)
    second.file.unlink()
    time.sleep(0.1)
    assert not first.file.exists()  # it does not take the lock back
    second._write()
    first.release()
    assert second.file.exists()


def test_a_released_lock_leaves_no_file_however_often_it_was_acquired(quick, tmp_path):
    mine = Lock(tmp_path, "group 1")
    mine.acquire()
    mine.acquire()  # a rank 0 does so when it opens the run and when it loads it
    mine.release()
    time.sleep(0.2)
    assert list(tmp_path.iterdir()) == []


def test_a_heartbeat_that_is_being_written_or_waits_for_the_guard_does_not_bring_a_released_lock_back(
    quick, monkeypatch, tmp_path
):
    own, is_writing, write = Lock(tmp_path), threading.Event(), Lock._write
    own.acquire()
    with lock.guarded(tmp_path / lock.GUARD_FILE), monkeypatch.context() as patch:
        time.sleep(0.2)  # by now a heartbeat waits for the guard
        patch.setattr(lock, "GUARD_PATIENCE", 0.0)
        own.release()
        assert not own.file.exists()
    time.sleep(0.2)
    assert not own.file.exists()

    def write_slowly(self):
        is_writing.set()
        time.sleep(0.2)
        write(self)

    own = Lock(tmp_path)
    own.acquire()
    monkeypatch.setattr(lock, "HEARTBEAT", 10.0)  # release waits so long at most
    monkeypatch.setattr(Lock, "_write", write_slowly)
    assert is_writing.wait(10)
    own.release()
    time.sleep(0.4)
    assert not own.file.exists()


def test_heartbeats_go_on_when_a_vanished_directory_is_back(quick, tmp_path):
    (tmp_path / "run").mkdir()
    mine = Lock(tmp_path / "run")
    mine.acquire()
    (tmp_path / "run").rename(tmp_path / "moved")
    time.sleep(0.1)
    mine.check()
    (tmp_path / "moved").rename(tmp_path / "run")
    beat = owner(tmp_path / "run")["beat"]
    wait_for(lambda: owner(tmp_path / "run")["beat"] > beat)
    mine.release()


def test_a_second_job_is_refused_and_one_that_was_taken_over_ends_with_one_line(
    start_mpies, run_mpies, write_config, tmp_path
):
    config, run = write_config(ENDLESS), tmp_path / "run"
    first = start_mpies(0, "train", config, "--out", "run")
    wait_for(lambda: (run / "metrics.csv").exists(), first)
    assert_refused(run_mpies(0, "train", config, "--out", "run"), f"is being written by process {first.pid}")
    Lock(run)._write()
    stderr = first.communicate(timeout=300)[1]
    assert first.returncode == 1 and "Traceback" not in stderr
    assert stderr.count(f"was taken over by process {os.getpid()}") == 1
    assert owner(run)["pid"] == os.getpid()


@pytest.mark.parametrize("host", [{}, {"host": "elsewhere"}])
def test_a_claim_is_taken_over_by_its_own_job_only_and_then_removes_nothing(host, tmp_path):
    """As by a rank of the job from one that was lost on another host."""
    claim, stranger, run = Lock(tmp_path, "group 1"), Lock(tmp_path, "group 2"), Lock(tmp_path, "group 1")
    claim.acquire()
    edit(tmp_path, **host)
    with pytest.raises(RunLocked):
        stranger.acquire()
    run.acquire()
    claim.release()
    run.check()
    assert (tmp_path / "writer.json").exists()
    run.release()
    assert list(tmp_path.iterdir()) == []


# Opens the run whose path it reads, says how that went, and closes it when it reads another line.
JOB = """
import random
import sys
import time
from mpies.config.loading import validate_config
from mpies.core.errors import UserError
from mpies.runs.directory import open_run

config = validate_config({"environment": {"id": "function:sphere", "dimension": 2}}, "x")
print("ready", flush=True)
for line in sys.stdin:
    run = None
    time.sleep(0.03 * random.random())  # that is how long the winner takes to make the directory
    try:
        run = open_run(line.strip(), config)
        print("won", flush=True)
    except UserError as error:
        print(error, flush=True)
    sys.stdin.readline()
    if run:
        run.close()
    print("closed", flush=True)
"""


@pytest.fixture(scope="module")
def jobs():
    """Processes that open a run each."""
    with running(JOB) as first, running(JOB) as second, running(JOB) as third:
        assert [job.stdout.readline() for job in (first, second, third)] == ["ready\n"] * 3
        yield first, second, third


def tell(jobs, line):
    """Send a line to all jobs.  Returns their answers."""
    for job in jobs:
        job.stdin.write(f"{line}\n")
        job.stdin.flush()
    return [job.stdout.readline().strip() for job in jobs]


def test_of_several_jobs_at_once_exactly_one_opens_a_run(jobs, tmp_path):
    for number in range(8):
        run = tmp_path / f"run-{number}"
        if number % 2:  # left by a dead job
            run.mkdir()
            dead = Lock(run)
            dead._owner |= {"start": -1}
            dead._write()
        answers = tell(jobs, run)
        assert answers.count("won") == 1, answers
        winner = jobs[answers.index("won")]
        answers.remove("won")
        for answer in answers:
            assert re.fullmatch(rf"{run}: is being written by process {winner.pid} on .*choose another --out", answer)
        assert json.loads((run / "writer.json").read_text())["pid"] == winner.pid
        assert {path.name for path in run.iterdir()} == {"writer.json", "config.yaml", "checkpoints"}
        assert tell(jobs, "") == ["closed"] * len(jobs)
        assert {path.name for path in run.iterdir()} == {"config.yaml", "checkpoints"}
