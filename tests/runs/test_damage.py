"""The text files of a run are views of its ledger: damage to them loses nothing, and nothing is deleted."""

import os

import numpy as np
import pytest
import yaml

from mpies.core.errors import Unreadable
from mpies.runs.directory import open_run
from mpies.runs.formats import ledger
from mpies.runs.formats.metrics import read_metrics
from mpies.runs.formats.tables import RanksFile
from mpies.runs.reader import RunView
from mpies.runs.snapshot import Evaluation
from mpies.runs.writer import RunWriter, write_ending
from tests.runs.conftest import CONFIG, make_snapshot, record
from tests.support import CARTPOLE, assert_refused, invoke

LAST = 6
FILES = ("metrics.csv", "evaluations.csv")


def make_row(generation):
    cells = {"episodes": 4 * generation, "steps": 9 * generation, "return_mean": 1 / generation, "sigma": 0.1}
    return {"generation": generation, "seconds": generation / 3, **cells}


def texts_of(run):
    return {name: (run.path / name).read_bytes() for name in FILES}


def fill(run, last=LAST):
    """Record generations, every second of which was evaluated, and leave the run."""
    for number in range(1, last + 1):
        evaluation = Evaluation(np.array([1.0, number]), np.array([3, 4])) if number % 2 == 0 else None
        progress = {"best": 1.0, "clock/seconds": np.array(number / 3), "clock/steps": np.array(9 * number)}
        record(run, make_snapshot(number, row=make_row(number), evaluation=evaluation, progress=progress))
    run.close()


def go_on(run, generation=LAST):
    """Go on with a run behind a generation; returns the lines that it warned of."""
    lines = []
    other = RunWriter(run.path, CONFIG, warn=lines.append)
    other.load()
    other.begin(make_snapshot(generation))
    other.close()
    return lines


def flip(path, place, bit):
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)
    return bytes(content)


@pytest.mark.parametrize("name", [*FILES, "ledger.bin", "log.txt"])
def test_a_link_in_a_strangers_run_is_not_written_through(name, write_config, here):
    config, mine = write_config(CARTPOLE), here / "mine"
    mine.write_text("of the user")
    assert invoke("train", config, "--out", "run", "stop.generations=2").code == 0
    (here / "run" / name).unlink()
    (here / "run" / name).symlink_to(mine)
    ended = invoke("train", config, "--out", "run", "stop.generations=4")
    assert mine.read_text() == "of the user"
    if ended.code:
        assert_refused(ended, f"{name}: is a link, and training would write where it leads")


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_anywhere_in_a_text_file_loses_nothing(run, name):
    fill(run)
    path, before, random = run.path / name, texts_of(run), np.random.default_rng(5)
    for place in random.permutation(len(before[name]))[:15].tolist():
        damaged = flip(path, place, int(random.integers(8)))
        (line,) = go_on(run) or [""]
        assert texts_of(run) == before, place
        kept = line.rpartition(" ")[2]
        if line:  # else the end of the last line, which looks like that of a killed job
            assert name in line and (run.path / kept).read_bytes() == damaged, place


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("content", [None, b"\0" * 4000, b"a,b\n1,2\n"])
def test_a_text_file_that_is_lost_or_replaced_is_made_again(run, name, content):
    fill(run)
    path, before = run.path / name, (run.path / name).read_bytes()
    path.unlink() if content is None else path.write_bytes(content)
    go_on(run)
    assert path.read_bytes() == before


def test_an_undamaged_run_goes_on_without_a_word_and_a_generation_is_on_disk_when_its_record_is(run):
    fill(run)
    before, names = texts_of(run), sorted(path.name for path in run.path.iterdir())
    assert go_on(run) == [] and names == sorted(path.name for path in run.path.iterdir())
    for file, content in before.items():
        (run.path / file).write_bytes(content[: content.rindex(b"\n6,") + 5])  # killed before it was complete
    assert go_on(run) == [] and texts_of(run) == before


def test_of_an_older_ledger_what_it_holds_comes_back_and_the_rest_is_said(run):
    fill(run)
    records = [dict(one) for one in ledger.read_records(run.path / "ledger.bin")]
    for one in records:
        del one["row"]
    (run.path / "ledger.bin").write_bytes(b"".join(map(ledger.pack_record, records)))
    before = read_metrics(run.path)
    flip(run.path / "metrics.csv", (run.path / "metrics.csv").read_bytes().index(b"\n3,") + 1, 4)
    first, second = go_on(run)
    assert "metrics.csv: is damaged" in first and first.endswith("is kept in metrics.csv.damaged-1")
    assert second.endswith("but for what the ledger of an older mpies has of 1: time, steps and digest")
    after = read_metrics(run.path)
    known = ("generation", "seconds", "steps", "digest")
    assert [row for row in after if row["generation"] != "3"] == [row for row in before if row["generation"] != "3"]
    assert [after[2][name] for name in known] == [before[2][name] for name in known] and after[2]["sigma"] == ""


def test_what_is_behind_a_damaged_record_is_kept(run):
    fill(run)
    path = run.path / "ledger.bin"
    ends = [end for _, end in ledger.read_all(path)]
    damaged, rows = flip(path, ends[2] + 40, 3), (run.path / "metrics.csv").read_bytes()
    assert len(go_on(run, generation=3)) == 3  # it goes on from what is left
    assert (run.path / "ledger.bin.damaged-1").read_bytes() == damaged[ends[2] :]
    assert (run.path / "metrics.csv.damaged-1").read_bytes() == rows
    assert [row["generation"] for row in read_metrics(run.path)] == ["1", "2", "3"]


@pytest.mark.parametrize("name", [*FILES, "ledger.bin", "finished.yaml", "best.h5"])
@pytest.mark.parametrize(("make", "reason"), [(os.mkdir, "Is a directory"), (os.mkfifo, "Not a regular file")])
def test_a_file_that_cannot_be_read_is_not_an_absent_one(run, name, make, reason):
    fill(run)
    path = run.path / name
    path.unlink(missing_ok=True)
    make(path)
    before = sorted((one.name, one.stat().st_mtime_ns) for one in run.path.iterdir())
    with pytest.raises(Unreadable, match=rf"{name}: cannot be read \({reason}\); nothing was written"):
        open_run(run.path, CONFIG)
    assert before == sorted((one.name, one.stat().st_mtime_ns) for one in run.path.iterdir())


def test_a_flipped_bit_in_what_the_writer_tells_of_itself_is_seen(run, tmp_path):
    view, ending = RunView(tmp_path), {"reason": "generations", "generation": 12, "steps": 99}
    run.lock.acquire()
    (tmp_path / "writer.json").write_bytes((run.path / "writer.json").read_bytes())
    RanksFile(tmp_path / "ranks.json").write(np.array([0.25, 0.5]), 7, now=True)
    write_ending(tmp_path, *ending.values())
    for name, read in (("writer.json", view.writer), ("ranks.json", view.ranks), ("finished.yaml", view.finished)):
        path, whole = tmp_path / name, read()
        assert whole and "crc32" not in whole
        content = path.read_bytes()
        for place in range(0, len(content), 3):
            flip(path, place, place % 8)
            assert not read() or whole.items() <= read().items(), (name, place)  # or the name of the checksum
            path.write_bytes(content)
    assert whole == yaml.safe_load(content) == ending
    path.write_bytes(content[: content.index(b"#")])  # as older ones are
    assert view.finished() == ending


def test_a_run_that_goes_on_with_other_packages_says_so_and_keeps_those_that_it_began_with(run, caplog):
    run.close()
    path = run.path / "config.yaml"
    for version in ("1.0.0", "1.9.0"):
        values = yaml.safe_load(path.read_text())
        values["versions"] |= {"numpy": version, "mpi4py": "1.0"}
        path.write_text(yaml.safe_dump(values))
        caplog.clear()
        open_run(run.path, CONFIG).close()
        (line,) = caplog.messages
        assert f"({version} before)" in line and "mpi4py" not in line
        values = yaml.safe_load(path.read_text())
        assert values["versions"]["began"]["numpy"] == "1.0.0" != values["versions"]["numpy"]
    caplog.clear()
    open_run(run.path, CONFIG).close()
    assert caplog.messages == [] and yaml.safe_load(path.read_text()) == values
