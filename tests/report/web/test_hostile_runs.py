"""A run directory that is damaged, or made to harm, is shown as bad; the others are listed, and the server lives."""

import json
import os
import shutil
import time
from itertools import pairwise

import pytest

from mpies.config.loading import parse_settings
from mpies.report.web import run_index
from mpies.runs.reader import RunView
from tests.report.web.served_runs import CONFIG, HEADER, get, line

OWNER = {"job": "a", "token": "b", "host": "h", "pid": 1, "start": 1, "boot": "", "namespace": "", "beat": 1}
DEEP = "[" * 100_000
LETTERS = "abcdefghijklmnop"
ALIASES = "a: &a [1, 1]\n" + "".join(f"{two}: &{two} [*{one}, *{one}, *{one}]\n" for one, two in pairwise(LETTERS))
BAD = {  # of which the list tells the reason
    "target inf": ("config.yaml", CONFIG.replace("target: 200", "target: .inf")),
    "target a list": ("config.yaml", CONFIG.replace("target: 200", "target: [1]")),
    "date as a key": ("config.yaml", CONFIG.replace("LunarLander-v3", "{2024-01-01: x}")),
    "deep": ("config.yaml", f"a: {DEEP}"),
    "deep lists": ("config.yaml", "- " * 100_000),
    "aliases": ("config.yaml", CONFIG + ALIASES),
    "itself": ("config.yaml", "a: &a [*a]\n" + CONFIG),
    "no date": ("config.yaml", CONFIG + "seed: 2024-99-99"),
    "a tag": ("config.yaml", CONFIG + "seed: !!python/object/apply:os.system [touch x]"),
    "large": ("config.yaml", CONFIG + "#" * 2**20),
    "empty": ("config.yaml", ""),
    "no utf-8": ("config.yaml", b"\xff\xfe\x00[{"),
}
ODD = {  # all that can be shown is shown
    "deep ranks": ("ranks.json", DEEP),
    "nan ranks": ("ranks.json", '{"first": NaN, "last": 1e999, "idle": [NaN, -Infinity]}'),
    "beat 1e400": ("writer.json", json.dumps(OWNER).replace('"beat": 1', '"beat": 1' + "0" * 400)),
    "pid a text": ("writer.json", json.dumps(OWNER | {"pid": "../../x\0", "host": []})),
    "deep writer": ("writer.json", '{"a":' * 100_000),
    "nan metrics": ("metrics.csv", HEADER + line(1).replace("150", "nan") + "inf," * 20 + "1e999\n"),
    "no metrics": ("metrics.csv", "\0" * 10_000),
    "wide": ("metrics.csv", ",".join(f"c{number}" for number in range(10**5)) + "\n" + "1," * 99_999 + "1\n"),
    "huge": ("metrics.csv", 2**40),
    "huge log": ("log.txt", 2**40),
    "folders": ("metrics.csv ranks.json writer.json finished.yaml log.txt best.h5", None),
    "loops": ("metrics.csv ranks.json writer.json finished.yaml log.txt best.h5", "loop"),
    "key a number": ("config.yaml", CONFIG + "extra: {1: 2, 2024-01-01: 3, null: .nan}\n"),
    "table": ("../trials.csv", 'name,state\n"' + "x" * 200_000),
}


def strict(answer):
    """The values of an answer, which must be JSON as browsers read it."""
    status, content = answer
    assert status in (200, 422), content
    return json.loads(content, parse_constant=pytest.fail) if status == 200 else content


@pytest.mark.parametrize("name", [*BAD, *ODD])
def test_one_bad_run_hides_no_other(name, server, run_folder):
    files, content = (BAD | ODD)[name]
    shutil.copytree(run_folder / "first", run_folder / "sub/bad")
    for file in files.split():
        path = run_folder / "sub/bad" / file
        path.unlink(missing_ok=True)
        if content is None:
            path.mkdir()
        elif content == "loop":
            path.symlink_to(path.name)
        elif isinstance(content, int):
            path.write_text(HEADER)
            os.truncate(path, content)
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    began = time.monotonic()
    for _ in range(2):
        listed = {one["name"]: one for one in strict(get(server, "/api/runs"))}
        assert (listed["first"]["generation"], listed["first"]["target"]) == (3, 200)
        assert (listed["sub/bad"]["state"] == "damaged") == (name in BAD)
        assert name in ODD or listed["sub/bad"]["reason"].startswith("config.yaml: is damaged (")
    assert strict(get(server, "/api/run?name=first"))["newest"]["generation"] == 3
    update = strict(get(server, "/api/run?name=sub/bad"))
    assert isinstance(update, dict) or (b"sub/bad: " in update and update.count(b"\n") == 1)
    compared = strict(get(server, "/api/compare?run=first&run=group/long&run=sub/bad"))
    assert b"metrics.csv has" in compared if name == "huge" else compared["runs"] >= 2
    assert strict(get(server, "/api/sweeps")) == []
    assert time.monotonic() - began < 20  # of a machine that is busy; alone it takes a second


def test_a_damaged_sweep_is_told_and_hides_nothing(server, run_folder):
    (run_folder / "swept").mkdir()
    (run_folder / "swept/sweep.yaml").write_text("a: 1")
    for content in ('name,state\n"' + "x" * 200_000, "state,seed\n1e999,nan\n,,,,\n", "\0", "a,seed,name,state\n1,2\n"):
        (run_folder / "swept/trials.csv").write_text(content)
        strict(get(server, "/api/sweep?name=swept"))
        assert len(strict(get(server, "/api/runs"))) == 3


def test_what_takes_long_is_read_later(run_folder, monkeypatch):
    index = run_index.RunIndex(run_folder, seconds=0.5)
    read = run_index.read_newest_numbers
    monkeypatch.setattr(run_index, "read_newest_numbers", lambda view: time.sleep(0.4) or read(view))
    listed = index.summaries()
    assert listed[0]["generation"] == 3 and "was not read yet" in listed[-1]["reason"]
    assert listed[-1]["name"] == "truncated"
    assert "was not read yet" not in index.summaries()[-1]["reason"]
    curves = run_index._read_curves
    monkeypatch.setattr(run_index, "_read_curves", lambda view: time.sleep(0.6) or curves(view))
    names = ["first", "group/long"]
    assert [index.read_overlay(names, "generation", "")["runs"] for _ in range(3)] == [1, 2, 2]


def test_settings_of_every_run_so_far_are_read():
    assert parse_settings("a: {b: [1, 2.5, null, x]}\nversions: {mpies: '1'}\n")["a"]["b"] == [1, 2.5, None, "x"]
    assert RunView("/absent").config() == {}
