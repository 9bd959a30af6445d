"""One writer to a run directory: who is refused, and who takes over."""

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
from tests.support import assert_refused, wait_for

HOLDER = """
import sys
from mpies.runs.lock import Lock
Lock(sys.argv[1]).acquire()
print("held", flush=True)
sys.stdin.read()
"""

NO_BEAT = json.dumps(dict.fromkeys(["job", "token", "host", "pid", "start", "boot", "namespace", "beat"], "x"))


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of tmp_path until its standard input is closed."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


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


def test_while_a_writer_lives_another_is_refused_with_its_host_process_and_heartbeat(holder, tmp_path):
    with pytest.raises(RunLocked) as refusal:
        Lock(tmp_path).acquire()
    message = str(refusal.value)
    assert "\n" not in message and message.startswith(f"{tmp_path}: is being written by process {holder.pid}")
    assert f"on {socket.gethostname()}" in message and "choose another --out" in message
    assert int(re.search(r"last heartbeat was (\d+) s ago", message)[1]) <= 2 * HEARTBEAT + 5
    assert owner(tmp_path)["pid"] == holder.pid


@pytest.mark.parametrize("is_zombie", [False, True])
def test_the_lock_of_a_process_that_has_ended_is_taken_over(is_zombie, holder, tmp_path):
    holder.kill()
    if is_zombie:
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)  # its parent has not collected it
    else:
        holder.wait()
    Lock(tmp_path).acquire()
    assert owner(tmp_path)["pid"] == os.getpid()


def test_a_later_process_with_the_number_of_the_writer_does_not_hold_the_lock(holder, tmp_path):
    edit(tmp_path, start=owner(tmp_path)["start"] - 1)
    Lock(tmp_path).acquire()


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
    command = [*space, sys.executable, "-c", HOLDER, str(tmp_path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "held\n" and owner(tmp_path)["host"] == socket.gethostname()
        with pytest.raises(RunLocked, match="is being written by process"):
            Lock(tmp_path).acquire()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("job", "refused"), [("a", False), ("b", True)])
def test_a_rank_of_the_same_job_takes_over_from_one_that_was_lost_on_another_host(job, refused, tmp_path):
    Lock(tmp_path, "a").acquire()
    edit(tmp_path, host="elsewhere", token="of another rank")
    with pytest.raises(RunLocked) if refused else contextlib.nullcontext():
        Lock(tmp_path, job).acquire()


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


def test_a_damaged_lock_file_of_a_writer_that_lives_is_written_again(holder, tmp_path):
    (tmp_path / "writer.json").write_text((tmp_path / "writer.json").read_text().replace('"pid": ', '"pid": 9'))
    with pytest.raises(RunLocked, match=f"is being written by process {holder.pid} "):
        Lock(tmp_path).acquire()


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
    first.release()
    assert owner(tmp_path) == taken


@pytest.mark.parametrize("job", [None, "group 1"])
def test_a_released_lock_leaves_no_file_however_often_it_was_acquired(job, quick, tmp_path):
    mine = Lock(tmp_path, job) if job else Lock(tmp_path)
    mine.acquire()
    mine.acquire()  # a rank 0 does so when it opens the run and when it loads it
    mine.release()
    time.sleep(0.2)
    assert list(tmp_path.iterdir()) == []


def test_a_heartbeat_that_is_being_written_does_not_bring_a_released_lock_back(quick, monkeypatch, tmp_path):
    own, is_writing, write = Lock(tmp_path), threading.Event(), Lock._write
    own.acquire()
    monkeypatch.setattr(lock, "HEARTBEAT", 10.0)  # release waits so long at most

    def write_slowly(self):
        is_writing.set()
        time.sleep(0.2)
        write(self)

    monkeypatch.setattr(Lock, "_write", write_slowly)
    assert is_writing.wait(10)
    own.release()
    time.sleep(0.4)
    assert not own.file.exists()


def test_a_heartbeat_that_waits_for_the_guard_does_not_bring_a_released_lock_back(quick, monkeypatch, tmp_path):
    own = Lock(tmp_path)
    own.acquire()
    with lock.guarded(tmp_path / lock.GUARD_FILE):
        time.sleep(0.2)  # by now a heartbeat waits for the guard
        monkeypatch.setattr(lock, "GUARD_PATIENCE", 0.0)
        own.release()
        assert not own.file.exists()
    time.sleep(0.2)
    assert not own.file.exists()


def test_a_writer_that_was_taken_over_does_not_take_the_lock_back_when_it_is_free(monkeypatch, tmp_path):
    monkeypatch.setattr(lock, "HEARTBEAT", 0.3)
    first, second = Lock(tmp_path), Lock(tmp_path)
    first.acquire()
    second._write()
    with pytest.raises(RunLocked):
        first.check()
    second.file.unlink()
    time.sleep(0.6)
    assert not first.file.exists()


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
    config = write_config(
        "environment: {id: 'function:sphere', dimension: 10}\nsolver: {population: 16}\nnoise: {size: 1000}\n"
        "evaluation: {every: 0}\nstop: {generations: 1000000}\n"
    )
    run = tmp_path / "run"
    first = start_mpies(0, "train", config, "--out", "run")
    wait_for(lambda: (run / "metrics.csv").exists(), first)
    assert_refused(run_mpies(0, "train", config, "--out", "run"), f"is being written by process {first.pid}")
    Lock(run)._write()
    stderr = first.communicate(timeout=300)[1]
    assert first.returncode == 1 and "Traceback" not in stderr
    assert stderr.count(f"was taken over by process {os.getpid()}") == 1
    assert owner(run)["pid"] == os.getpid()


def test_a_claim_is_taken_over_by_its_own_job_only_and_then_removes_nothing(tmp_path):
    claim, stranger, run = Lock(tmp_path, "group 1"), Lock(tmp_path, "group 2"), Lock(tmp_path, "group 1")
    claim.acquire()
    with pytest.raises(RunLocked):
        stranger.acquire()
    run.acquire()
    claim.release()
    run.check()
    assert (tmp_path / "writer.json").exists()
    run.release()
    assert list(tmp_path.iterdir()) == []
