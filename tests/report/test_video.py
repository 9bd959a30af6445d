"""Episodes to look at: how long a video lasts, what is in it, and what cannot be shown."""

import resource

import gymnasium
import imageio.v3
import numpy as np
import pytest
from PIL import Image, ImageSequence

from mpies.config.loading import validate_config
from mpies.core.errors import ConfigError
from mpies.report.evaluate import show_member, show_policy, visible_task
from mpies.report.video import Video
from mpies.runs.formats import hdf5
from mpies.runs.formats.metrics import read_metrics
from mpies.runs.formats.policy_file import load_policy
from mpies.training.task import Task
from tests.support import assert_refused, describe_config, environment_module, invoke

CURE = "it must be a file in a folder that you may write to"


@pytest.fixture(autouse=True)
def without_screen(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("suffix", ["mp4", "gif"])
def test_a_video_lasts_as_long_as_the_episodes(suffix, run, tmp_path):
    video, policy = tmp_path / f"video.{suffix}", load_policy(run)
    returns = show_policy(policy, 2, None, video)
    assert {int(row["generation"]): row["eval_mean"] for row in read_metrics(run)}[policy.generation]
    length = sum(returns) + 2  # CartPole gives 1 a step, and a frame stands before the first
    if suffix == "mp4":
        assert len(imageio.v3.imread(video)) == length
    else:  # every second frame; equal ones are stored as one that lasts longer
        with Image.open(video) as image:
            durations = [one.info["duration"] for one in ImageSequence.Iterator(image)]
        assert sum(durations) == 40 * (-(-length // 2)) and len(durations) > 3
    told = invoke("play", run, "--video", video, code=0).stdout
    assert float(told.rpartition(" ")[2]) == returns[0]


def test_the_camera_follows_a_robot(tmp_path, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "egl")
    env = gymnasium.make("Humanoid-v5", render_mode="rgb_array").unwrapped
    env.reset(seed=1)
    with Video(tmp_path / "video.mp4") as video:
        video.add_frame(env)
    shown = []
    for metres in (0, 8):
        env.set_state(env.init_qpos + metres * np.eye(env.model.nq)[0], env.init_qvel)
        shown.append(env.render())
    env.close()
    brown = [(frame[..., 0].astype(int) - frame[..., 2] > 40) for frame in shown]  # the humanoid
    assert brown[0].sum() > 500 and brown[1].sum() == pytest.approx(brown[0].sum(), rel=0.1)


def test_a_member_is_replayed_and_recorded(run, tmp_path):
    video = tmp_path / "video.mp4"
    recorded, replayed, failures = show_member(run, 2, 3, video)
    assert recorded == replayed and failures == {}
    assert len(imageio.v3.imread(video)) == recorded + 1
    ended = invoke("play", run, "--member", "2,3")
    assert ended.code == 0 and f"recorded {recorded:.6g}, " in ended.stdout


def test_what_cannot_be_shown_is_refused_in_one_line(run, here):
    (here / "folder.gif").mkdir()
    before = sorted(here.iterdir())
    for arguments, words in (
        ([], "there is no screen here: record with --video"),
        (["--video", "x.avi"], "must end in .mp4 or .gif"),
        (["--video", "absent/video.gif"], f"absent/video.gif: cannot be written (No such file or directory); {CURE}"),
        (["--video", "folder.gif"], f"folder.gif: cannot be written (Is a directory); {CURE}"),
    ):
        assert_refused(invoke("play", run, *arguments), words)
        assert sorted(here.iterdir()) == before
    config = validate_config({"environment": {"id": "function:sphere", "dimension": 3}}, "config")
    with pytest.raises(ConfigError, match="function:sphere has no episodes to show"), visible_task(config, None):
        pass


def write_policy(path, section):
    """Write an untrained policy of an environment section to a file."""
    config = validate_config({"environment": section, "policy": {"hidden": []}}, "config")
    task = Task(config)
    size = task.observation_size
    arrays = task.first_policy() | {"normalization": np.stack([np.zeros(size), np.ones(size)])}
    path.write_bytes(hdf5.pack(arrays, {**describe_config(config), "generation": 0}))


@pytest.mark.parametrize(
    ("environment", "package", "stride"),
    [
        *(("AntBulletEnv-v0", "pybullet", 1), ("ALE/Pong-v5", "ale_py", 1), ("Hopper-v5", "mujoco", 3)),
        ("CartPoleSwingUp-v0", "gymnasium", 2),
    ],
)
def test_an_environment_is_recorded_without_a_screen(environment, package, stride, tmp_path):
    """Of pybullet by its own renderer, of Atari by its emulator, of MuJoCo in software, of one of mpies by NumPy.

    stride: every so many steps are a frame, since 125 steps of the hopper take a second.
    """
    pytest.importorskip(package)
    backend = "auto" if package == "pybullet" else "gymnasium"
    write_policy(tmp_path / "policy.h5", {"id": environment, "backend": backend, "max_steps": 3})
    ended = invoke("play", tmp_path / "policy.h5", "--video", tmp_path / "video.mp4")
    if package == "mujoco" and "gl" in ended.stderr.lower():
        pytest.skip("MuJoCo finds no EGL here: apt-get install libegl1 libgl1-mesa-dri")
    assert ended.code == 0, ended.stderr
    frames = imageio.v3.imread(tmp_path / "video.mp4").astype(int)
    assert len(frames) == len(range(0, 4, stride))
    assert frames[0].std() > 5  # not of one colour
    assert np.abs(frames[-1] - frames[0]).max() > 0  # something moves


class Screen:
    """An environment that renders the same frame for ever, and counts how often."""

    def __init__(self, frame, frames_per_second=30):
        self.frame, self.metadata, self.rendered = frame, {"render_fps": frames_per_second}, 0

    def render(self):
        self.rendered += 1
        return self.frame


def test_a_video_that_was_cut_off_leaves_no_file_and_odd_sizes_are_cut_to_even_ones(tmp_path):
    screen, path = Screen(np.zeros((33, 65, 3), np.uint8)), tmp_path / "video.mp4"
    with pytest.raises(KeyboardInterrupt), Video(path) as video:
        video.add_frame(screen)
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
    with Video(path) as video:
        video.add_frame(screen)
    assert imageio.v3.imread(path).shape[1:3] == (32, 64)


@pytest.mark.parametrize(("suffix", "rendered"), [("mp4", 60), ("gif", 24)])
def test_only_the_frames_of_the_video_are_rendered(suffix, rendered, tmp_path):
    screen = Screen(np.zeros((16, 16, 3), np.uint8), frames_per_second=120)
    with Video(tmp_path / f"video.{suffix}") as video:
        for _ in range(120):
            video.add_frame(screen)
    assert screen.rendered == rendered


SEEN = """
class Blind(Room):
    def __init__(self, render_mode=None):
        self.render_mode = render_mode
class Seen(Blind):
    def render(self):
        return np.zeros((16, 16, 3), np.uint8)
"""
ROOM = environment_module("Room") + SEEN
NEEDS = "its constructor must accept render_mode, and with render_mode rgb_array render must return an image"


def test_an_environment_that_draws_nothing_is_refused_with_what_it_needs(tmp_path):
    (tmp_path / "room.py").write_text(ROOM)
    unexpected = "Room.__init__() got an unexpected keyword argument 'render_mode'"
    for name, reason in (("Room", unexpected), ("Blind", "it draws no pictures")):
        write_policy(tmp_path / "policy.h5", {"id": f"{tmp_path}/room.py:{name}"})
        ended = invoke("play", tmp_path / "policy.h5", "--video", tmp_path / "video.gif")
        assert ended.code == 2 and not list(tmp_path.glob("*video*"))
        assert ended.stderr.startswith(f"mpies: {tmp_path}/room.py:{name} cannot be shown: ")
        assert ended.stderr.endswith(f"{reason}; {NEEDS}\n") and ended.stderr.count("\n") == 1


def test_a_member_whose_episodes_fail_has_no_video_and_this_is_said(tmp_path):
    (tmp_path / "room.py").write_text(environment_module("Room", step="1 / (3 - self.steps)", length=9) + SEEN)
    sections = f"environment: {{id: '{tmp_path}/room.py:Seen'}}\npolicy: {{hidden: []}}\nsolver: {{population: 4}}\n"
    config = f"{sections}noise: {{size: 1000}}\nevaluation: {{every: 0}}\nstop: {{generations: 2, max_failures: 1}}\n"
    (tmp_path / "room.yaml").write_text(config)
    invoke("train", tmp_path / "room.yaml", "--out", tmp_path / "run")  # its last evaluation fails
    video = tmp_path / "video.gif"
    ended = invoke("play", tmp_path / "run", "--member", "1,0", "--video", video)
    assert ended.code == 1 and not video.exists() and "ZeroDivisionError" in ended.stdout
    cure = "play another --member"
    assert ended.stderr == f"mpies: {video}: not written, since episodes of this member failed; {cure}\n"
    assert invoke("play", tmp_path / "run", "--member", "1,0").code == 0  # as recorded


@pytest.mark.parametrize(("suffix", "limit"), [("mp4", 1000), ("mp4", 50_000), ("gif", 50_000)])
def test_a_full_disk_leaves_the_earlier_video_in_place(suffix, limit, tmp_path):
    """The process may write files of `limit` bytes at most."""
    noise = "np.random.default_rng(0).integers(0, 255, (480, 640, 3), np.uint8)"
    (tmp_path / "room.py").write_text(ROOM.replace("np.zeros((16, 16, 3), np.uint8)", noise))
    write_policy(tmp_path / "policy.h5", {"id": f"{tmp_path}/room.py:Seen"})
    video = tmp_path / f"video.{suffix}"
    video.write_bytes(b"an earlier one")
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
    try:
        done = invoke("play", tmp_path / "policy.h5", "--video", video)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert done.code == 1 and video.read_bytes() == b"an earlier one" and not list(tmp_path.glob(".video*"))
    line = done.stderr.splitlines()[-1]
    assert line.startswith(f"mpies: the output cannot be written ({video}: ") and line.endswith("make room")
