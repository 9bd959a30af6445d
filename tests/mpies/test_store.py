from mpies.runs import hdf5
from mpies.runs.checkpoint import newest_checkpoint
from mpies.runs.files import write_atomically
from mpies.runs.metrics import read_metrics
from mpies.runs.writer import _header
from mpies.runs.writer import open_run
from mpies.runs.writer import os
import random

import numpy as np
import pytest

from mpies.errors import ConfigError
from mpies.config.loading import validate_config
from mpies.errors import RunError
from mpies.runs.hdf5 import pack, unpack

ARRAYS = {
    "solver/mean": np.random.default_rng(0).standard_normal(500).astype(np.float32),
    "solver/generation": np.int64(7),
    "best": np.float64(-np.inf),
    "empty": np.zeros(0),
}
CONFIG = validate_config({"environment": {"id": "CartPole-v1"}}, "x")


def test_what_is_unpacked_is_what_was_packed_to_the_bit():
    arrays, attributes = unpack(pack(ARRAYS, {"generation": 7, "config": "seed: 1\n"}), "x.h5")
    assert hdf5.digest(arrays) == hdf5.digest(ARRAYS)
    assert (attributes["generation"], attributes["config"]) == (7, "seed: 1\n")


def test_the_file_is_one_that_any_hdf5_reader_opens(tmp_path):
    import h5py

    (tmp_path / "x.h5").write_bytes(pack(ARRAYS, {}))
    with h5py.File(tmp_path / "x.h5") as file:
        np.testing.assert_array_equal(file["solver/mean"][()], ARRAYS["solver/mean"])


def test_every_flipped_byte_is_found_out():
    content, chance = pack(ARRAYS, {"generation": 7}), random.Random(1)
    used = list(range(80)) + [chance.randrange(512, len(content)) for _ in range(400)] + [len(content) - 1]
    for place in used:
        damaged = bytearray(content)
        damaged[place] ^= 1 << chance.randrange(8)
        try:
            unpack(bytes(damaged), "x.h5")
        except RunError as error:
            assert "x.h5" in str(error) and "\n" not in str(error)
        else:
            assert content[place] in b"\0\n ", f"byte {place} of {len(content)} may be anything"


def test_every_truncation_is_found_out():
    content = pack(ARRAYS, {"generation": 7})
    for length in [*range(0, 600, 7), *range(600, len(content), 97), len(content) - 1]:
        with pytest.raises(RunError, match=r"x\.h5"):
            unpack(content[:length], "x.h5")


@pytest.mark.parametrize("content", [b"", b"hello", b"mpies", b"\x89HDF\r\n\x1a\n" * 100, bytes(5000)])
def test_what_is_no_file_of_ours_is_refused(content):
    with pytest.raises(RunError, match="not a file of mpies"):
        unpack(content, "x.h5")


def test_a_newer_format_is_refused_with_the_cure():
    whole = pack(ARRAYS, {})[512:]
    content = _header(whole, b"9") + whole
    with pytest.raises(RunError, match="has format 9, this mpies reads 1; use a newer mpies"):
        unpack(content, "x.h5")


def test_a_digest_hangs_on_names_types_shapes_and_bits():
    base = np.arange(6, dtype=np.float32)
    variants = [
        {"a": base},
        {"b": base},
        {"a": base.reshape(2, 3)},
        {"a": base.view(np.int32)},
        {"a": np.nextafter(base, 9)},
        {"a": np.where(base == 0, np.float32(-0.0), base)},
        {"a": base, "b": base},
    ]
    assert len({hdf5.digest(arrays) for arrays in variants}) == len(variants)
    assert hdf5.digest({"a": base, "b": base * 2}) == hdf5.digest({"b": base * 2, "a": base.copy()})


def test_a_write_that_dies_leaves_the_old_content_and_no_rubbish(tmp_path, monkeypatch):
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


def test_a_write_is_synced_before_it_takes_its_name(tmp_path, monkeypatch):
    calls, fsync, replace = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda number: calls.append("sync") or fsync(number))
    monkeypatch.setattr(os, "replace", lambda *names: calls.append("rename") or replace(*names))
    write_atomically(tmp_path / "x", b"1")
    assert calls == ["sync", "rename", "sync"]


def with_checkpoints(path, generations):
    (path / "checkpoints").mkdir(parents=True)
    for generation in generations:
        content = pack({"generation": np.int64(generation)}, {"generation": generation})
        (path / "checkpoints" / f"generation-{generation:08d}.h5").write_bytes(content)
    return path


def test_the_newest_whole_checkpoint_is_taken_and_the_damaged_one_named(tmp_path):
    run, said = with_checkpoints(tmp_path, [5, 10, 20]), []
    (run / "checkpoints" / ".generation-00000030.h5.1.tmp").write_bytes(b"torn")
    newest = run / "checkpoints" / "generation-00000020.h5"
    newest.write_bytes(newest.read_bytes()[:-10])
    arrays, attributes = newest_checkpoint(run, said.append)
    assert (arrays["generation"], attributes["generation"]) == (10, 10)
    assert len(said) == 1 and "generation-00000020.h5" in said[0] and "going back" in said[0]


def test_no_whole_checkpoint_is_none(tmp_path):
    assert newest_checkpoint(tmp_path, print) is None
    run, said = with_checkpoints(tmp_path, [1]), []
    (run / "checkpoints" / "generation-00000001.h5").write_bytes(b"")
    assert newest_checkpoint(run, said.append) is None
    assert len(said) == 1


@pytest.mark.parametrize("torn", ["", "3,", "3,4.5", "3,4.5,0.1", "3,4.5,0.1,ab"])
def test_a_torn_line_of_the_metrics_is_left_out(tmp_path, torn):
    (tmp_path / "metrics.csv").write_text("generation,seconds,mean,digest\n1,2,3,x\n2,3,4,y\n" + torn)
    assert [row["generation"] for row in read_metrics(tmp_path)] == ["1", "2"]


@pytest.mark.parametrize("damaged", ["1;2,3,x", "q,2,3,x", ",2,3,x", "-1,2,3,x", "1,2,3,x,", "\0,2,3,x", "1.0,2,3,x"])
def test_a_damaged_line_of_the_metrics_is_left_out(tmp_path, damaged):
    (tmp_path / "metrics.csv").write_text(f"generation,seconds,mean,digest\n{damaged}\n2,3,4,y\n")
    assert [row["generation"] for row in read_metrics(tmp_path)] == ["2"]


def test_without_their_heading_there_are_no_metrics(tmp_path):
    (tmp_path / "metrics.csv").write_text("genera4ion,seconds,mean,digest\n1,2,3,x\n")
    assert read_metrics(tmp_path) == []


def test_metrics_of_a_run_that_has_none_are_empty(tmp_path):
    assert read_metrics(tmp_path) == []
    (tmp_path / "metrics.csv").write_text("generation,sec")
    assert read_metrics(tmp_path) == []


def test_a_folder_of_something_else_is_not_written_to(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ConfigError, match="is neither empty nor a run; take another --out"):
        open_run(tmp_path, CONFIG, "auto")
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("out", ["file", "file/below", "/proc/mpies", "/dev/null"])
def test_a_place_that_cannot_be_a_run_directory_is_said_in_one_line(tmp_path, out):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="take another --out") as caught:
        open_run(tmp_path / out, CONFIG, "auto")
    assert "\n" not in str(caught.value)
    assert (tmp_path / "file").read_text() == "x"


@pytest.mark.parametrize("content", ["", "[]", "a: [", "seed: 1", "\x00", "solver: 5\nseed: {a: 1}"])
def test_a_run_whose_config_is_damaged_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "config.yaml").write_text(content)
    with pytest.raises((ConfigError, RunError)) as caught:
        open_run(tmp_path, CONFIG, "auto")
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)
    assert (tmp_path / "config.yaml").read_text() == content
