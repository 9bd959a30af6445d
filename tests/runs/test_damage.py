"""Files of a run that are damaged, or that somebody else removes, shortens or replaces while it is trained.

The text files are views of the ledger: damage to them loses nothing, and nothing is deleted.
"""

import os
import shutil
import signal

import numpy as np
import psutil
import pytest
import yaml

from mpies.core.errors import TrainingFailed, Unreadable
from mpies.runs import files
from mpies.runs.directory import open_run
from mpies.runs.formats import ledger
from mpies.runs.formats.checkpoint import list_checkpoints
from mpies.runs.formats.metrics import read_digests, read_metrics
from mpies.runs.formats.tables import RanksFile
from mpies.runs.reader import RunView
from mpies.runs.snapshot import Evaluation
from mpies.runs.writer import RunWriter, write_ending
from mpies.training.replay import Replay
from tests.runs.conftest import CONFIG, make_snapshot, record
from tests.support import CARTPOLE, ENDLESS, assert_refused, invoke, wait_for

LAST = 6
FILES = ("metrics.csv", "evaluations.csv")


def texts_of(path):
    return {name: (path / name).read_bytes() for name in FILES}


@pytest.fixture
def filled(run):
    """The path of a run of LAST generations, every second of which was evaluated; its writer has left it."""
    for number in range(1, LAST + 1):
        evaluation = Evaluation(np.array([1.0, number]), np.array([3, 4])) if number % 2 == 0 else None
        progress = {"best": 1.0, "clock/seconds": np.array(number / 3), "clock/steps": np.array(9 * number)}
        row = {"generation": number, "seconds": number / 3, "episodes": 4 * number, "steps": 9 * number}
        row |= {"return_mean": 1 / number, "sigma": 0.1}
        record(run, make_snapshot(number, row=row, evaluation=evaluation, progress=progress))
    run.close()
    return run.path


def go_on(path, generation=LAST):
    """Go on with a run behind a generation; returns the lines that it warned of."""
    lines = []
    run = RunWriter(path, CONFIG, warn=lines.append)
    run.load()
    run.begin(make_snapshot(generation))
    run.close()
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
def test_a_flipped_bit_anywhere_in_a_text_file_loses_nothing(filled, name):
    path, before, random = filled / name, texts_of(filled), np.random.default_rng(5)
    for place in random.permutation(len(before[name]))[:15].tolist():
        damaged = flip(path, place, int(random.integers(8)))
        (line,) = go_on(filled) or [""]
        assert texts_of(filled) == before, place
        kept = line.rpartition(" ")[2]
        if line:  # else the end of the last line, which looks like that of a killed job
            assert name in line and (filled / kept).read_bytes() == damaged, place


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("content", [None, b"\0" * 4000, b"a,b\n1,2\n"])
def test_a_text_file_that_is_lost_or_replaced_is_made_again(filled, name, content):
    path, before = filled / name, (filled / name).read_bytes()
    path.unlink() if content is None else path.write_bytes(content)
    go_on(filled)
    assert path.read_bytes() == before


def test_an_undamaged_run_goes_on_without_a_word_and_a_generation_is_on_disk_when_its_record_is(filled):
    before, names = texts_of(filled), sorted(path.name for path in filled.iterdir())
    assert go_on(filled) == [] and names == sorted(path.name for path in filled.iterdir())
    for file, content in before.items():
        (filled / file).write_bytes(content[: content.rindex(b"\n6,") + 5])  # killed before it was complete
    assert go_on(filled) == [] and texts_of(filled) == before


def test_of_an_older_ledger_what_it_holds_comes_back_and_the_rest_is_said(filled):
    file = filled / "ledger.bin"
    records = [{name: one[name] for name in one if name != "row"} for one in ledger.read_records(file)]
    file.write_bytes(b"".join(map(ledger.pack_record, records)))
    before = read_metrics(filled)
    flip(filled / "metrics.csv", (filled / "metrics.csv").read_bytes().index(b"\n3,") + 1, 4)
    first, second = go_on(filled)
    assert "metrics.csv: is damaged" in first and first.endswith("is kept in metrics.csv.damaged-1")
    assert second.endswith("but for what the ledger of an older mpies has of 1: time, steps and digest")
    after = read_metrics(filled)
    known = ("generation", "seconds", "steps", "digest")
    assert [row for row in after if row["generation"] != "3"] == [row for row in before if row["generation"] != "3"]
    assert [after[2][name] for name in known] == [before[2][name] for name in known] and after[2]["sigma"] == ""


def test_what_is_behind_a_damaged_record_is_kept(filled):
    path = filled / "ledger.bin"
    ends = [end for _, end in ledger.read_all(path)]
    damaged, rows = flip(path, ends[2] + 40, 3), (filled / "metrics.csv").read_bytes()
    assert len(go_on(filled, generation=3)) == 3  # it goes on from what is left
    assert (filled / "ledger.bin.damaged-1").read_bytes() == damaged[ends[2] :]
    assert (filled / "metrics.csv.damaged-1").read_bytes() == rows
    assert [row["generation"] for row in read_metrics(filled)] == ["1", "2", "3"]


@pytest.mark.parametrize("name", [*FILES, "ledger.bin", "finished.yaml", "best.h5"])
@pytest.mark.parametrize(("make", "reason"), [(os.mkdir, "Is a directory"), (os.mkfifo, "Not a regular file")])
def test_a_file_that_cannot_be_read_is_not_an_absent_one(filled, name, make, reason):
    path = filled / name
    path.unlink(missing_ok=True)
    make(path)
    before = sorted((one.name, one.stat().st_mtime_ns) for one in filled.iterdir())
    with pytest.raises(Unreadable, match=rf"{name}: cannot be read \({reason}\); nothing was written"):
        open_run(filled, CONFIG)
    assert before == sorted((one.name, one.stat().st_mtime_ns) for one in filled.iterdir())


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


TRAINED = ENDLESS.replace("every: 2, share: 1", "every: 10, keep: 2, share: 1").replace("every: 0", "every: 20")
TRAINED = TRAINED.replace("1000000", "120")

# What is done to a run, and the file that the one line names.
TAMPERING = {
    "metrics cut off": (lambda run: os.truncate(run / "metrics.csv", 40), "metrics.csv"),
    "metrics replaced": (lambda run: (run / "metrics.csv").write_bytes(b"x" * 99_999), "metrics.csv"),
    "config removed": (lambda run: (run / "config.yaml").unlink(), "config.yaml"),
    "ledger cut off": (lambda run: os.truncate(run / "ledger.bin", 100), "ledger.bin"),
    "ledger removed": (lambda run: (run / "ledger.bin").unlink(), "ledger.bin"),
    "directory removed": (shutil.rmtree, "ledger.bin"),
    "directory emptied": (lambda run: (shutil.rmtree(run), run.mkdir()), "ledger.bin"),
}


def record_all(run, *generations):
    evaluation = Evaluation(np.ones(5), np.ones(5, np.int64))
    record(run, *(make_snapshot(generation, evaluation=evaluation) for generation in generations))


@pytest.mark.parametrize("what", TAMPERING)
def test_a_writer_names_the_file_that_was_tampered_with(what, run):
    tamper, file = TAMPERING[what]
    record_all(run, 1, 2, 3)
    tamper(run.path)
    with pytest.raises(TrainingFailed, match=f"{file}: was removed(, shortened or replaced)? while the run is written"):
        record_all(run, 4)
    assert run.lines == []


def test_a_directory_whose_disk_is_gone_is_not_made_on_another_one(run, monkeypatch):
    record_all(run, 1, 2, 3)
    monkeypatch.setattr(files, "find_device", lambda path: 1 if run.path.exists() else 2)
    run._ledger._device = 1
    run.path.rename(run.path.with_name("moved"))
    record_all(run, 4, 5)
    assert not run.path.exists()
    refused = "cannot be written (No such file or directory); training continues, and writing is tried again"
    assert run.lines == [f"{run.path}: {refused}"]
    run.path.with_name("moved").rename(run.path)
    record_all(run, 6)
    assert run.lines[1:] == [f"{run.path}: can be written again; nothing is lost"]
    assert len(read_metrics(run.path)) == len(list(ledger.read_records(run.path / "ledger.bin"))) == 6


@pytest.mark.parametrize(("what", "ranks"), [("directory removed", 0), ("ledger removed", 2)])
def test_a_run_that_was_tampered_with_ends_in_one_line_and_the_same_command_goes_on(
    what, ranks, digests_of, start_mpies, run_mpies, write_config, tmp_path
):
    tamper, file = TAMPERING[what]
    run, config = tmp_path / "run", write_config(TRAINED)
    job = start_mpies(ranks, "train", config, "--out", "run", "stop.generations=100000")
    wait_for(lambda: len(read_digests(run)) >= 25, job)
    job.send_signal(signal.SIGSTOP)  # a single rank stands still
    wait_for(lambda: psutil.Process(job.pid).status() == psutil.STATUS_STOPPED, job)
    tamper(run)
    job.send_signal(signal.SIGCONT)
    stderr = job.communicate(timeout=300)[1]
    assert job.returncode == 1 and "Traceback" not in stderr, stderr
    (line,) = [line for line in stderr.splitlines() if "was removed, shortened or replaced" in line]
    assert f"{run / file}: was removed, shortened or replaced while the run is written; the same command" in line
    assert len(list_checkpoints(run)) == (0 if what == "directory removed" else 3)
    outcome = run_mpies(0, "train", config, "--out", "run", code=0)
    assert ("continuing from generation" in outcome.stderr) == (what != "directory removed")
    assert read_digests(run)[-20:] == digests_of(TRAINED)[-20:]
    assert Replay(run, 120).is_faithful()


@pytest.fixture
def train(run_mpies, write_config):
    """Function of a number of generations: trains TRAINED so far, in tmp_path/run.  Returns its standard error."""
    config = write_config(TRAINED)
    return lambda made: run_mpies(0, "train", config, "--out", "run", f"stop.generations={made}", code=0).stderr


def test_what_was_lost_between_two_jobs_is_named_and_training_begins_again_where_it_can(digests_of, train, tmp_path):
    run = tmp_path / "run"
    train(20)
    (run / "ledger.bin").unlink()
    stderr = train(30)
    assert stderr.count("WARNING") == 1
    assert "ledger.bin: generation 20 is missing; training is not affected, but a new ledger begins" in stderr
    assert "WARNING" not in train(60) and read_digests(run) == digests_of(TRAINED)[:60]
    assert ledger.first_generation(run / "ledger.bin") == 21
    assert Replay(run, 20).is_faithful() and Replay(run, 60).is_faithful()
    shutil.rmtree(run / "checkpoints")
    (run / "ledger.bin").unlink()
    assert "run: has no readable checkpoint; training starts again at generation 0" in train(30)
    assert read_digests(run) == digests_of(TRAINED)[:30] and Replay(run, 30).is_faithful()


def test_rows_that_were_lost_between_two_jobs_come_from_the_ledger_or_are_named(train, tmp_path):
    run = tmp_path / "run"
    train(20)
    content = (run / "metrics.csv").read_text()
    for lost in ("finished.yaml", "ledger.bin"):
        (run / "metrics.csv").write_text("".join(content.splitlines(keepends=True)[:6]))
        (run / "finished.yaml").unlink()
        (run / lost).unlink(missing_ok=True)
        is_lost = "run/metrics.csv: 15 of the first 20 rows are missing; they are lost" in train(20)
        assert is_lost == (lost == "ledger.bin")
        assert len(read_metrics(run)) == (5 if is_lost else 20)
        assert is_lost or (run / "metrics.csv").read_text() == content
