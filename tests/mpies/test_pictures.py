"""Pictures, report, comparison and films of real little runs."""

import copy
import dataclasses
import os
import shutil
import subprocess
import sys
import time
from html.parser import HTMLParser
from importlib.util import find_spec

import imageio.v3
import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image, ImageSequence

from mpies import painter, store
from mpies.cli import main
from mpies.compare import group_runs, tabulate
from mpies.config import as_yaml, load, resolved, validate
from mpies.curves import read_curves
from mpies.evaluate import evaluate_policy
from mpies.landscape import follow, principal_axes, slice_returns
from mpies.painter import Painter
from mpies.task import Task

CONFIG = """
environment: {id: CartPole-v1, backend: gymnasium, max_steps: 40}
policy: {hidden: []}
solver: {population: 8, sigma: 0.3, optimizer: {learning_rate: 0.2}}
noise: {size: 10000}
evaluation: {every: 2, episodes: 4}
stop: {generations: 6, target: 1000}
"""
PICTURES = ("reward_vs_time.png", "reward_vs_iteration.png", "reward_vs_steps.png")


def train(folder, *arguments, pictures="0"):
    (folder / "config.yaml").write_text(CONFIG)
    command = [sys.executable, "-m", "mpies", "train", "config.yaml", *arguments]
    environment = os.environ | {"MPIES_PICTURES": pictures}
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, env=environment)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs with seeds 1 and 2 of one config."""
    folder = tmp_path_factory.mktemp("runs")
    train(folder, "--out", "one", "--seeds", "2")
    return folder


def invoke(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_train_draws_at_its_end_and_plot_draws_again(tmp_path):
    train(tmp_path, "--out", "run", pictures="1")
    for name in PICTURES:
        assert imageio.v3.imread(tmp_path / "run" / name).shape[:2] == (504, 960)
        (tmp_path / "run" / name).unlink()
    ended = invoke("plot", tmp_path / "run", "--width", "4")
    assert ended.exit_code == 0 and [line.rpartition("/")[2] for line in ended.stdout.split()] == list(PICTURES)
    assert imageio.v3.imread(tmp_path / "run" / PICTURES[0]).shape[1] == 480
    assert not list((tmp_path / "run").glob(".*.tmp"))


def test_a_job_that_lost_its_run_draws_nothing(folder, tmp_path):
    run = shutil.copytree(folder / "one-seed-1", tmp_path / "run")
    (run / "writer.json").write_text('{"token": "mine"}')
    for token, drawn in (("another's", 0), ("mine", 3)):
        paint(run, b"dl", share=1e9, token=token)
        assert len(list(run.glob("reward_vs_*.png"))) == drawn


def paint(run, asked, share, token="mine"):
    """Ask the drawing process for something, and wait for its end."""
    command = [sys.executable, "-m", "mpies.painter", run, token, "0", str(share), "0"]
    subprocess.run(command, input=asked, check=True, timeout=60)


def test_pictures_beyond_the_share_wait_but_the_last_do_not(folder, tmp_path):
    run = shutil.copytree(folder / "one-seed-1", tmp_path / "run")
    (run / "writer.json").write_text('{"token": "mine"}')
    for asked, share, drawn in ((b"d", 1e-9, 0), (b"d", 1e9, 3), (b"dl", 1e-9, 3)):
        paint(run, asked, share)
        pictures = list(run.glob("reward_vs_*.png"))
        assert len(pictures) == drawn
        for picture in pictures:
            picture.unlink()


def test_every_evaluation_is_drawn_where_time_allows(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("MPIES_PICTURES", "1")
    path = shutil.copytree(folder / "one-seed-1", tmp_path / "run")
    run = store.Run(path, load(folder / "config.yaml"))
    run.lock.acquire()
    frugal = Painter(run, ranks=1)
    frugal.refresh()
    assert frugal._process is None  # so soon, its start alone would take more than its share
    monkeypatch.setattr(painter, "SHARE", 1e9)
    generous = Painter(run, ranks=1)
    for _ in range(2):
        generous.refresh()
        end = time.monotonic() + 60
        while not (path / PICTURES[-1]).exists() and time.monotonic() < end:
            time.sleep(0.05)
        (path / PICTURES[-1]).unlink()
    generous.close()
    assert (path / PICTURES[-1]).exists() and generous._process.returncode == 0
    run.close()


def test_seeds_are_runs_of_their_own_and_resume(folder):
    configs = [store.read_config(folder / f"one-seed-{seed}") for seed in (1, 2)]
    assert [config.pop("seed") for config in configs] == [1, 2] and configs[0] == configs[1]
    before = [row["digest"] for row in store.read_metrics(folder / "one-seed-2")]
    train(folder, "--out", "one", "--seeds", "1..2")
    assert [row["digest"] for row in store.read_metrics(folder / "one-seed-2")] == before
    for refused in (["--seeds", "0"], ["--seeds", "a"], ["--seeds", "2", "seed=3"]):
        assert invoke("train", folder / "config.yaml", *refused).exit_code == 2


def test_a_comparison_counts_by_hand(folder, tmp_path):
    runs = [read_curves(folder / f"one-seed-{seed}") for seed in (1, 2)]
    final = sorted(run["eval_mean"][-1] for run in runs)
    ((label, count, solved, median, quartiles, steps, _),) = tabulate(group_runs(runs))
    assert (label, count, solved, steps) == ("CartPole-v1, openai_es", "2", "0 of 2", "-")
    assert median == f"{np.mean(final):,.2f}"
    low, high = final[0] + (final[1] - final[0]) / 4, final[1] - (final[1] - final[0]) / 4
    assert quartiles == f"{low:,.2f} to {high:,.2f}"
    x, y = group_runs(runs)[0].on_grid("generation", points=5)
    assert x.tolist() == [2, 3, 4, 5, 6] and y[:, 1] == pytest.approx((y[:, 0] + y[:, 2]) / 2)
    ended = invoke("compare", *(run.path for run in runs), "--out", tmp_path / "new/folder")
    assert ended.exit_code == 0 and "0 of 2" in ended.stdout and len(list(tmp_path.glob("new/folder/*.png"))) == 3
    (tmp_path / "file").touch()
    ended = invoke("compare", *(run.path for run in runs), "--out", tmp_path / "file")
    assert ended.exit_code == 2 and "cannot be made (File exists)" in ended.output


def test_groups_are_told_apart_by_what_they_are_made_of(folder):
    run = read_curves(folder / "one-seed-1")
    other = copy.deepcopy(run.config)
    other["solver"] |= {"kind": "cma_es", "optimizer": None}
    groups = group_runs([run, dataclasses.replace(run, config=other)])
    assert [group.label for group in groups] == ["openai_es, adam", "cma_es"]


def test_groups_are_told_apart_by_what_they_differ_in(folder):
    run = read_curves(folder / "one-seed-1")

    def changed(**solver):
        return dataclasses.replace(run, config=run.config | {"solver": run.config["solver"] | solver})

    runs = [run, changed(kind="ars"), changed(kind="ars", episodes=5)]
    labels = {group.label for group in group_runs(runs)}
    assert labels == {"openai_es", f"ars, solver.episodes {run.config['solver']['episodes']}", "ars, solver.episodes 5"}


def test_a_trajectory_is_the_run_and_its_slice_goes_through_the_final_policy(folder):
    run = folder / "one-seed-1"
    ended = invoke("plot", run, "--trajectory", "--grid", "3", "--episodes", "2")
    assert ended.exit_code == 0, ended.output
    assert imageio.v3.imread(run / "landscape.png").shape[:2] == imageio.v3.imread(run / "trajectory.png").shape[:2]
    trajectory = follow(run)
    final, _ = store.read(run / "policy.h5")
    assert trajectory.generations.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert trajectory.means[-1].tobytes() == final["parameters"].tobytes()
    axes, shares = principal_axes(trajectory.means)
    assert axes @ axes.T == pytest.approx(np.eye(2), abs=1e-5) and 0 < shares.sum() <= 1.0001
    centred = trajectory.means - trajectory.means.mean(axis=0)
    widest = np.linalg.svd(centred.astype(float))[2][:2]
    assert np.abs(axes @ widest.T) == pytest.approx(np.eye(2), abs=1e-3)
    _, returns = slice_returns(trajectory, axes, 3, 2)
    assert returns[1, 1] == evaluate_policy(run / "policy.h5", 2)["mean"] and len(np.unique(returns)) > 1


def test_repeats_on_two_ranks_are_those_on_one(folder, tmp_path, run_mpies):
    (tmp_path / "config.yaml").write_text(CONFIG)
    assert run_mpies(2, "train", "config.yaml", "--out", "one", "--seeds", "2").code == 0
    for name in ("one-seed-1", "one-seed-2"):
        here, there = (store.read_metrics(where / name)[-1]["digest"] for where in (tmp_path, folder))
        assert here == there


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.sources = []

    def handle_starttag(self, tag, attributes):
        assert tag not in ("script", "link", "iframe")
        self.sources += [value for name, value in attributes if name in ("src", "srcset", "href")]


def test_a_report_needs_nothing_but_itself(folder):
    ended = invoke("report", folder / "one-seed-1")
    assert ended.exit_code == 0
    text = (folder / "one-seed-1" / "report.html").read_text()
    links = Links()
    links.feed(text)
    assert len(links.sources) == 6 and all(source.startswith("data:image/svg+xml") for source in links.sources)
    mean = read_curves(folder / "one-seed-1")["eval_mean"][-1]
    for words in (
        f"mean return {mean:.2f}, 95 % confidence",
        "final evaluation",
        "over 4 held-out episodes",
        "all generations made",
        "learning_rate: 0.2",
        "numpy ",
    ):
        assert words in text


@pytest.mark.parametrize("ending", ["mp4", "gif"])
def test_a_film_lasts_as_long_as_the_episode(ending, folder, tmp_path):
    film = tmp_path / f"film.{ending}"
    ended = invoke("play", folder / "one-seed-1", "--video", film)
    assert ended.exit_code == 0, ended.output
    length = float(ended.stdout.rpartition(" ")[2])  # a pole gives 1 a step
    if ending == "mp4":
        assert len(imageio.v3.imread(film)) == length + 1
    else:  # every second frame, and those that are equal are one that lasts longer
        with Image.open(film) as picture:
            lasts = [one.info["duration"] for one in ImageSequence.Iterator(picture)]
        assert sum(lasts) == 40 * (-(-(length + 1) // 2)) and len(lasts) > 3
    ended = invoke("play", folder / "one-seed-1", "--member", "2,3", "--video", film)
    assert ended.exit_code == 0 and "played again" in ended.stdout


def test_what_cannot_be_shown_is_refused_in_one_line(folder, tmp_path, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    for arguments, words in (
        (("play", folder / "one-seed-1"), "record with --video"),
        (("play", folder / "one-seed-1", "--video", "x.avi"), "must end in .mp4 or .gif"),
        (("plot", tmp_path), "is " + str(tmp_path) + " a run?"),
        (("plot", tmp_path, "--trajectory"), "is " + str(tmp_path) + " a run?"),
        (("report", tmp_path), "a run?"),
    ):
        ended = invoke(*arguments)
        assert ended.exit_code == 2 and words in ended.stderr and ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("environment", "package"), [("AntBulletEnv-v0", "pybullet"), ("ALE/Pong-v5", "ale_py"), ("Hopper-v5", "mujoco")]
)
def test_a_world_without_a_screen_is_filmed(environment, package, tmp_path, monkeypatch):
    """pybullet's own renderer, Atari's emulator, MuJoCo in software."""
    pytest.importorskip(package)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    section = {"id": environment, "backend": "auto" if package == "pybullet" else "gymnasium", "max_steps": 3}
    config = validate({"environment": section, "policy": {"hidden": []}}, "config")
    policy = Task(config).first_policy() | {"normalization": np.stack([np.zeros(1), np.ones(1)])}
    attributes = {"config": as_yaml(resolved(config)), "generation": 0}
    store.write_atomically(tmp_path / "policy.h5", store.pack(policy, attributes))
    ended = invoke("play", tmp_path / "policy.h5", "--video", tmp_path / "film.mp4")
    if package == "mujoco" and "gl" in ended.output.lower():
        pytest.skip("MuJoCo finds no EGL here: apt-get install libegl1 libgl1-mesa-dri")
    assert ended.exit_code == 0, ended.output
    frames = imageio.v3.imread(tmp_path / "film.mp4").astype(int)
    assert len(frames) == 4 and frames[0].std() > 5  # not of one colour
    assert np.abs(frames[-1] - frames[0]).max() > 0  # something moves


def test_umap_draws_where_it_is_installed_and_is_named_where_it_is_not(folder, tmp_path):
    run = shutil.copytree(folder / "one-seed-1", tmp_path / "run")
    ended = invoke("plot", run, "--trajectory", "--umap", "--grid", "3", "--episodes", "1")
    if find_spec("umap"):
        assert ended.exit_code == 0 and imageio.v3.imread(run / "trajectory_umap.png").shape[:2] == (504, 960)
    else:
        assert ended.exit_code == 2 and 'pip install "mpies[umap]"' in ended.stderr
