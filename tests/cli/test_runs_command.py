"""mpies runs lists runs and removes those that are named, but none that is being written."""

import errno
import json
import os
import shutil
import subprocess
import time

import pytest
from click.testing import CliRunner

from mpies.cli.main import main
from mpies.runs import directory
from mpies.runs.formats.metrics import read_metrics
from mpies.runs.lock import HEARTBEAT, LOCK_FILE, Lock
from mpies.runs.reader import RunView, with_checksum
from tests.support import CARTPOLE, ENDLESS, assert_refused, invoke, read_files, wait_for


@pytest.fixture
def folder(trained, here):
    """A folder with runs/old, runs/newest and runs/sweep/middle; the newest has solved its task."""
    for age, name in enumerate(("newest", "sweep/middle", "old")):
        run = shutil.copytree(trained(CARTPOLE), here / "runs" / name)
        then = time.time() - 1000 * age
        os.utime(run / "metrics.csv", (then, then))
    finished = here / "runs/newest/finished.yaml"
    finished.write_text(with_checksum(finished.read_text().splitlines()[0].replace("generations", "solved") + "\n"))
    (here / "runs/old/finished.yaml").unlink()
    metrics = here / "runs/newest/metrics.csv"
    names, *rows = (line.split(",") for line in metrics.read_text().splitlines())
    rows[-1][names.index("eval_mean")] = "-1212.37164"
    metrics.write_text("".join(",".join(line) + "\n" for line in (names, *rows)))
    return here


def test_runs_are_listed_with_the_newest_first_also_as_json(folder):
    lines = [line.split() for line in invoke("runs").stdout.splitlines()]
    assert lines[0] == ["run", "status", "generation", "evaluation", "time", "size", "changed"]
    listed = ["runs/newest solved 10", "runs/sweep/middle finished 10", "runs/old stopped 10"]
    assert [" ".join(line[:3]) for line in lines[1:]] == listed
    rows = json.loads(invoke("runs", "--json").stdout)
    assert [row["path"] for row in rows] == [line[0] for line in lines[1:]]
    row = rows[0]
    assert (row["status"], row["environment"], row["eval_mean"]) == ("solved", "CartPole-v1", -1212.37164)
    assert json.dumps(row["generation"]) == "10"
    assert lines[1][3:5] == ["-1212.37", "+-"]
    newest = read_metrics(folder / "runs/newest")[-1]
    interval = 1.96 * float(newest["eval_std"]) / float(newest["eval_episodes"]) ** 0.5
    assert float(lines[1][5]) == pytest.approx(interval, abs=0.01)
    assert row["size"] == sum(len(content) for content in read_files(folder / "runs/newest").values())
    assert row["changed"] == pytest.approx(time.time(), abs=100) and row["seconds"] > 0
    assert invoke("runs", "runs/sweep").stdout.splitlines()[1].startswith("runs/sweep/middle ")


@pytest.mark.parametrize("file", ["config.yaml", "metrics.csv"])
def test_a_run_that_cannot_be_read_is_named_beside_the_others(folder, monkeypatch, file):
    """A stale handle is not an absent file: the run does not look as if it had no generation, or had not ended."""
    opened = RunView.open

    def refuse(view, name):
        if name == file and view.name == "newest":
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return opened(view, name)

    monkeypatch.setattr(RunView, "open", refuse)
    result = invoke("runs")
    lines = [line.split()[:3] for line in result.stdout.splitlines()[1:]]
    assert result.code == 1 and lines[0] == ["runs/newest", "damaged", "-"]
    assert [line[0] for line in lines[1:]] == ["runs/sweep/middle", "runs/old"]
    assert result.stderr.startswith(f"runs/newest: {file}: cannot be read (Stale file handle)")
    assert json.loads(invoke("runs", "--json").stdout)[0]["reason"].startswith(file)
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert "damaged" not in invoke("runs").stdout


def test_runs_that_are_named_are_removed_after_asking(folder):
    refused = CliRunner().invoke(main, ["runs", "--prune", "runs/old"], input="n\n")
    assert refused.exit_code == 1 and (folder / "runs/old").exists()
    assert "runs/old  stopped" in refused.stdout and "Remove this run?" in refused.stdout
    agreed = CliRunner().invoke(main, ["runs", "--prune", "runs/old", "runs/sweep/middle/"], input="y\n")
    assert agreed.exit_code == 0 and "Remove these 2 runs?" in agreed.stdout
    assert sorted(os.listdir("runs")) == ["newest", "sweep"] and os.listdir("runs/sweep") == []
    twice = invoke("runs", "--prune", "--yes", "runs/newest", "runs/newest/", "runs/../runs/newest")
    assert twice.code == 0 and twice.stdout.count("removed") == 1, twice.stderr
    assert os.listdir("runs") == ["sweep"]


def test_what_is_no_run_is_not_removed_and_neither_is_what_is_named_beside_it(folder):
    (folder / "project").mkdir()
    (folder / "project" / "config.yaml").write_text(CARTPOLE)  # a user's own
    os.symlink(folder / "runs/old", folder / "link")
    reasons = {"runs": "is not a run", "project": "is not a run", "link": "is a link", "absent": "is not a run"}
    for path, reason in reasons.items():
        assert_refused(invoke("runs", "--prune", "--yes", "runs/old", path), f"{path}: {reason}")
    assert (folder / "runs/old/ledger.bin").exists() and (folder / "project/config.yaml").exists()


def test_a_run_that_is_being_written_is_never_removed(folder, start_mpies, write_config):
    process = start_mpies(0, "train", write_config(ENDLESS), "--out", "runs/live")
    live = folder / "runs" / "live"
    wait_for(lambda: (live / "metrics.csv").exists() and len(read_metrics(live)) > 1, process)
    assert "runs/live" in invoke("runs").stdout.splitlines()[1] and " running " in invoke("runs").stdout
    before = len(read_metrics(live))
    refused = invoke("runs", "--prune", "--yes", "runs/old", "runs/live")
    assert_refused(refused, f"runs/live: is being written by process {process.pid} on ", "; stop it first")
    assert (folder / "runs/old").exists()
    wait_for(lambda: len(read_metrics(live)) > before, process)
    process.terminate()
    assert process.wait(30) == 75
    assert invoke("runs", "--prune", "--yes", "runs/live").code == 0
    time.sleep(HEARTBEAT / 10)
    assert not live.exists()


def test_what_cannot_be_removed_of_a_run_stays_in_its_place(folder):
    mounted = folder / "runs/old/mounted"
    mounted.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "none", mounted]).returncode:
        pytest.skip("only root can mount a disk")
    try:
        refused = invoke("runs", "--prune", "--yes", "runs/old")
    finally:
        place = next(folder.glob("runs/*old*/mounted"))
        subprocess.run(["umount", "--lazy", place], check=True)
    assert_refused(refused, "runs/old: cannot be removed completely (Device or resource busy); remove the rest by hand")
    assert sorted(path.name for path in (folder / "runs").iterdir()) == ["newest", "old", "sweep"]


def test_a_job_that_takes_the_lock_meanwhile_keeps_its_run(folder, monkeypatch):
    """The removal holds the lock itself: here another live process has it although no check has seen it."""
    other = Lock("runs/old", job="another")
    other.acquire()
    monkeypatch.setattr(directory, "check_removable", lambda path: None)
    assert_refused(invoke("runs", "--prune", "--yes", "runs/old"), "runs/old: is being written by process")
    assert (folder / "runs/old" / LOCK_FILE).exists()
    other.release()
