"""Plots while a run is training: when they are drawn, by whom, and at what cost."""

import subprocess
import sys
import time

import imageio.v3
import pytest

from mpies.config.loading import load_config
from mpies.report import live_plots
from mpies.report.live_plots import LivePlots
from mpies.runs.writer import RunWriter
from tests.report.conftest import train

FILES = ("reward_vs_time.png", "reward_vs_iteration.png", "reward_vs_steps.png")


def drawing_command(run, share, token="mine"):
    """The command of a drawing process of its own, in a run whose lock has the token `mine`."""
    (run / "writer.json").write_text('{"token": "mine"}')
    return [sys.executable, "-m", live_plots.__name__, run, token, "0", str(share), "0"]


def draw(run, requests, share):
    """Send requests to a drawing process and wait for its end.  Returns how many plots there are."""
    subprocess.run(drawing_command(run, share), input=requests, check=True, timeout=60)
    return len(list(run.glob("reward_vs_*.png")))


def test_training_draws_at_its_end(tmp_path):
    train(tmp_path, "--out", "run", pictures="1")
    for name in FILES:
        assert imageio.v3.imread(tmp_path / "run" / name).shape[:2] == (504, 960)


def test_nothing_is_drawn_where_the_environment_forbids_it(trained):
    assert not list((trained / "one-seed-1").glob("reward_vs_*.png"))  # trained with MPIES_PICTURES=0


@pytest.mark.parametrize(
    ("requests", "share", "plots"), [(b"d", 1e-9, 0), (b"d", 1e9, 3), (b"dl", 1e-9, 3)], ids=["wait", "draw", "last"]
)
def test_plots_beyond_the_share_wait_but_the_last_do_not(requests, share, plots, run):
    assert draw(run, requests, share) == plots


def test_a_job_that_lost_the_lock_draws_nothing_and_ends(run):
    with subprocess.Popen(drawing_command(run, 1e9, token="another's"), stdin=subprocess.PIPE) as process:
        process.stdin.write(b"d")
        process.stdin.flush()
        assert process.wait(60) == 0  # although more requests could follow
    assert not list(run.glob("reward_vs_*.png"))


@pytest.fixture
def writer(run, trained):
    """The run, opened to be written and locked."""
    writer = RunWriter(run, load_config(trained / "config.yaml"))
    writer.lock.acquire()
    yield writer
    writer.close()


def test_plots_are_drawn_again_where_the_share_allows(writer, run, monkeypatch):
    monkeypatch.setenv("MPIES_PICTURES", "1")
    early = LivePlots(writer, ranks=1)
    early.refresh()
    assert early._process is None  # so soon, the start alone would take more than the share
    monkeypatch.setattr(live_plots, "MAX_SHARE", 1e9)
    plots = LivePlots(writer, ranks=1)
    for _ in range(2):
        plots.refresh()
        end = time.monotonic() + 60
        while not (run / FILES[-1]).exists() and time.monotonic() < end:
            time.sleep(0.05)
        (run / FILES[-1]).unlink()
    plots.close()
    assert (run / FILES[-1]).exists() and plots._process.returncode == 0


def test_the_last_plots_are_drawn_although_the_drawing_process_was_killed(writer, run, monkeypatch):
    monkeypatch.setenv("MPIES_PICTURES", "1")
    monkeypatch.setattr(live_plots, "MAX_SHARE", 1e9)
    plots = LivePlots(writer, ranks=1)
    plots.refresh()
    plots._process.kill()
    plots._process.wait()
    plots.refresh()  # finds nobody to ask
    plots.close()
    assert all((run / name).exists() for name in FILES)


def test_no_process_is_started_without_the_lock(writer, monkeypatch):
    monkeypatch.setenv("MPIES_PICTURES", "1")
    writer.close()
    plots = LivePlots(writer, ranks=1)
    plots.close()
    assert plots._process is None


def test_a_drawing_process_that_cannot_start_does_not_stop_the_run(writer, monkeypatch):
    monkeypatch.setenv("MPIES_PICTURES", "1")
    monkeypatch.setattr(sys, "executable", "/absent/python")
    plots = LivePlots(writer, ranks=1)
    plots.close()
    assert plots._process is None and not plots._is_enabled


def test_a_drawing_process_that_hangs_is_killed(writer, monkeypatch, tmp_path):
    monkeypatch.setenv("MPIES_PICTURES", "1")
    hanging = tmp_path / "hanging"
    hanging.write_text("#!/bin/sh\nexec sleep 60\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(hanging))
    plots = LivePlots(writer, ranks=1)
    plots.close(timeout=0.1)
    assert plots._process.returncode == -9
