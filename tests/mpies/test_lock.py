"""One writer to a run directory: who is refused, who takes over, who notices."""

from mpies.runs.lock import BEAT
from mpies.runs.lock import STALE
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time

import pytest

from mpies.runs.lock import Lock
from mpies.errors import RunLocked

HOLDER = """
import sys
from mpies.lock import Lock
Lock(sys.argv[1]).acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of tmp_path until its standard input is closed."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def owner(path):
    return json.loads((path / "writer.json").read_text())


def edit(path, **values):
    """Change what the lock file says of its owner."""
    (path / "writer.json").write_text(json.dumps(owner(path) | values))


def test_a_live_writer_is_refused_with_host_process_and_last_sign_of_life(holder, tmp_path):
    with pytest.raises(RunLocked) as refusal:
        Lock(tmp_path).acquire()
    said = str(refusal.value)
    assert "\n" not in said and said.startswith(f"{tmp_path}: is being written by process {holder.pid}")
    assert f"on {socket.gethostname()}" in said and "take another --out" in said
    assert int(re.search(r"last sign of life (\d+) s ago", said)[1]) <= 2 * BEAT + 5
    assert owner(tmp_path)["pid"] == holder.pid


def test_the_lock_of_a_process_that_is_gone_is_taken_over(holder, tmp_path):
    holder.kill()
    holder.wait()
    Lock(tmp_path).acquire()
    assert owner(tmp_path)["pid"] == os.getpid()


def test_the_lock_of_a_zombie_is_taken_over(holder, tmp_path):
    holder.kill()
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)  # it is dead, but nobody has collected it
    Lock(tmp_path).acquire()
    assert owner(tmp_path)["pid"] == os.getpid()


def test_a_process_that_merely_got_the_number_of_the_dead_writer_holds_nothing(holder, tmp_path):
    edit(tmp_path, start=owner(tmp_path)["start"] - 1)
    Lock(tmp_path).acquire()


@pytest.mark.parametrize("elsewhere", [{"host": "node17"}, {"boot": "before the crash"}])
def test_a_writer_on_another_host_counts_as_dead_after_silence_only(elsewhere, holder, tmp_path):
    holder.kill()
    holder.wait()
    edit(tmp_path, **elsewhere, beat=time.time() - 7)
    with pytest.raises(RunLocked, match=f"on {elsewhere.get('host', socket.gethostname())}, .* life [78] s ago"):
        Lock(tmp_path).acquire()
    edit(tmp_path, beat=time.time() - STALE - 1)
    Lock(tmp_path).acquire()
    assert owner(tmp_path)["pid"] == os.getpid()


@pytest.mark.parametrize(("job", "refused"), [("a", False), ("b", True)])
def test_a_rank_of_the_same_job_takes_the_place_of_one_that_is_lost_elsewhere(job, refused, tmp_path):
    Lock(tmp_path, "a").acquire()
    edit(tmp_path, host="elsewhere", token="of another rank")
    with pytest.raises(RunLocked) if refused else contextlib.nullcontext():
        Lock(tmp_path, job).acquire()


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"token": "x"', "\0\0"])
def test_a_damaged_lock_file_stops_nobody(content, tmp_path):
    (tmp_path / "writer.json").write_text(content)
    Lock(tmp_path).acquire()
    assert owner(tmp_path)["pid"] == os.getpid()


def test_the_one_who_was_taken_over_notices_and_writes_no_more(monkeypatch, tmp_path):
    monkeypatch.setattr(lock, "BEAT", 0.02)
    first, second = Lock(tmp_path), Lock(tmp_path)
    first.acquire()
    beat = owner(tmp_path)["beat"]
    wait_for(lambda: owner(tmp_path)["beat"] > beat)
    first.check()
    second._write()
    with pytest.raises(RunLocked, match=f"was taken over by process {os.getpid()} on {socket.gethostname()}"):
        first.check()
    wait_for(lambda: not first.held)
    time.sleep(0.1)
    taken = owner(tmp_path)
    assert taken["token"] == second._me["token"]
    first.release()
    assert owner(tmp_path) == taken


def test_a_released_lock_is_gone_for_good_however_often_it_was_acquired(monkeypatch, tmp_path):
    monkeypatch.setattr(lock, "BEAT", 0.02)
    mine = Lock(tmp_path)
    mine.acquire()
    mine.acquire()  # a rank 0 does so when it opens the run and when it loads it
    mine.release()
    time.sleep(0.2)
    assert list(tmp_path.iterdir()) == []


def test_a_vanished_directory_stops_no_beat(monkeypatch, tmp_path):
    monkeypatch.setattr(lock, "BEAT", 0.02)
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


def wait_for(condition, seconds=10):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come about in time"
        time.sleep(0.01)


def test_a_second_job_is_refused_and_one_that_was_taken_over_ends_with_one_line(
    start_mpies, run_mpies, write_config, tmp_path
):
    config = write_config(
        "environment: {id: 'function:sphere', dimension: 10}\nsolver: {population: 16}\nnoise: {size: 1000}\n"
        "evaluation: {every: 0}\nstop: {generations: 1000000}\n"
    )
    run = tmp_path / "run"
    first = start_mpies(0, "train", config, "--out", "run")
    wait_for(lambda: (run / "metrics.csv").exists(), 60)
    refused = run_mpies(0, "train", config, "--out", "run")
    assert refused.code == 2 and refused.stderr.count("\n") == 1
    assert f"is being written by process {first.pid}" in refused.stderr
    Lock(run)._write()
    stderr = first.communicate(timeout=60)[1]
    assert first.returncode == 1 and "Traceback" not in stderr
    assert stderr.count(f"was taken over by process {os.getpid()}") == 1
    assert owner(run)["pid"] == os.getpid()
