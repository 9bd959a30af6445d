"""Files that are never half-written, and where a run is."""

import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mpies.core.errors import ConfigError
from mpies.runs.directory import refuse_run_file
from mpies.runs.files import AppendOnlyFile, default_out, keep_aside, write_atomically
from tests.support import CARTPOLE


def test_a_write_that_fails_leaves_the_old_content_and_no_other_file(tmp_path, monkeypatch):
    path = tmp_path / "x.h5"
    write_atomically(path, b"old")
    for step in ("fsync", "replace"):
        with monkeypatch.context() as patch, pytest.raises(OSError, match="full"):
            patch.setattr(os, step, lambda *args: (_ for _ in ()).throw(OSError("disk full")))
            write_atomically(path, b"new")
        assert path.read_bytes() == b"old"
        assert [file.name for file in tmp_path.iterdir()] == ["x.h5"]
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


def test_an_error_names_the_file_as_it_was_given_and_no_temporary_one(here):
    (here / "folder").mkdir()
    (here / "plain").touch()
    for given in ("absent/x.h5", "plain/x.h5", "folder"):
        with pytest.raises(OSError, match=r"Errno \d+") as error:
            write_atomically(given, b"1")
        assert error.value.filename == given
    assert sorted(file.name for file in here.iterdir()) == ["folder", "plain"]


def test_writes_of_the_same_file_at_the_same_moment_leave_one_of_them(tmp_path):
    """As of two containers, whose processes may have the same number."""
    path, contents = tmp_path / "x.json", [bytes([letter]) * 5000 for letter in b"abcd"]

    def write(content):
        for _ in range(50):
            write_atomically(path, content, sync=False)
            assert path.read_bytes() in contents

    with ThreadPoolExecutor(len(contents)) as threads:
        list(threads.map(write, contents))
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]


@pytest.mark.parametrize(("sync", "expected"), [(True, ["sync", "rename", "sync"]), (False, ["rename"])])
def test_a_file_is_synced_before_it_is_renamed(sync, expected, tmp_path, monkeypatch):
    calls, fsync, replace = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda number: calls.append("sync") or fsync(number))
    monkeypatch.setattr(os, "replace", lambda *names: calls.append("rename") or replace(*names))
    write_atomically(tmp_path / "x", b"1", sync)
    assert calls == expected


@pytest.mark.parametrize("refusal", ["fsync", "open"])
def test_a_folder_that_cannot_be_synced_is_no_reason_to_fail(refusal, tmp_path, monkeypatch):
    """Some file systems do not sync folders (FUSE, SMB), and some folders may not be listed."""
    call = getattr(os, refusal)

    def refuse(what, *arguments):
        if os.path.isdir(what):
            raise OSError(errno.EINVAL, "Invalid argument") if refusal == "fsync" else PermissionError(13, "denied")
        return call(what, *arguments)

    monkeypatch.setattr(os, refusal, refuse)
    write_atomically(tmp_path / "x", b"1")
    assert (tmp_path / "x").read_bytes() == b"1"


def test_devices_and_pipes_are_written_to_and_stay_what_they_are(tmp_path):
    write_atomically("/dev/null", b"1")
    assert Path("/dev/null").is_char_device()
    os.mkfifo(tmp_path / "pipe")
    with open(os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as reader:
        write_atomically(tmp_path / "pipe", b"1")
        assert reader.read(9) == b"1" and (tmp_path / "pipe").is_fifo()
    code = "from mpies.runs.files import write_atomically; write_atomically('/dev/stdout', b'1')"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout == b"1"
    assert Path("/dev/stdout").is_symlink()


def test_records_are_added_behind_the_part_to_keep_once_under_a_name_and_synced_when_asked_for(tmp_path, monkeypatch):
    path = tmp_path / "log"
    path.write_bytes(b"one,two,cut o")
    file, synced, fsync = AppendOnlyFile(path, len(b"one,two,")), [], os.fsync
    for key in (1, 1, 2, 2, None, None):
        file.append(b"%s," % str(key).encode(), key)
    whole = b"one,two,1,2,None,None,"
    for left in (b"", b"sec", b"half of a longer record"):  # by another attempt
        with open(path, "ab") as other:
            other.write(left)
        file.append(b"second;")
        whole += b"second;"
        assert path.read_bytes() == whole
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.fstat(number).st_size) or fsync(number))
    file.append(b"last")
    assert not synced
    file.sync()
    assert synced == [len(whole) + 4]
    AppendOnlyFile(path, path.stat().st_size).append(b"five")
    assert path.read_bytes() == whole + b"lastfive"
    for name in ("log", "absent"):  # one that is to be empty need not exist
        AppendOnlyFile(tmp_path / name, 0).append(b"new")
        assert (tmp_path / name).read_bytes() == b"new"


def test_a_run_without_out_is_named_by_its_config_and_overrides():
    assert default_out("configs/lander.yaml", []) == Path("runs/lander")
    overrides = ["solver.sigma=0.05", "environment.id=a/b:C-v1", "policy.hidden=[8, 8]"]
    name = "lander_solver.sigma=0.05_environment.id=a-b-C-v1_policy.hidden=-8,-8-"
    assert default_out("lander.yaml", overrides) == Path("runs") / name
    assert default_out("maps/rooms.py:Small", ["seed=4"]) == Path("runs/rooms-Small_seed=4")
    assert default_out("rooms.py", []) == Path("runs/rooms")
    assert default_out("pkg.maps:A", []) == Path("runs/pkg.maps-A") != default_out("pkg.others:A", [])


def test_damaged_contents_are_kept_aside_each_once(tmp_path):
    names = [keep_aside(tmp_path / "x.csv", content) for content in (b"1", b"2", b"1")]
    assert names == ["x.csv.damaged-1", "x.csv.damaged-2", "x.csv.damaged-1"]
    assert [(tmp_path / name).read_bytes() for name in names] == [b"1", b"2", b"1"]


def test_no_file_of_a_run_is_replaced(trained):
    run = trained(CARTPOLE)
    for name in ("metrics.csv", "checkpoints/other.h5", "writer.json"):
        with pytest.raises(ConfigError, match="is a file of the run in"):
            refuse_run_file(run / name)
    refuse_run_file(run / "curve.png")
