"""Episodes to look at, in a window or recorded to a file."""

import errno
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mpies.config.schema import Config
from mpies.core.errors import ConfigError
from mpies.core.paths import absolute
from mpies.envs import EnvironmentProblem
from mpies.envs.base import VectorEnv
from mpies.envs.gymnasium_registry import name_in_gymnasium
from mpies.envs.messages import is_about_arguments, one_line
from mpies.report.evaluate import held_out_batch
from mpies.rollouts.batch import RolloutBatch
from mpies.rollouts.queue import play_alone
from mpies.runs.hdf5 import Arrays
from mpies.training.replay import load_member, load_policy_of
from mpies.training.task import Task

# Frames of a second of video: viewers slow faster GIFs down, and drawing takes most of the time.
MAX_FRAMES = {".mp4": 60, ".gif": 25}
SUFFIXES = tuple(MAX_FRAMES)
_NEEDS = "its constructor must accept render_mode, and with render_mode rgb_array render must return an image"


class Renderable(Protocol):
    """An environment as gymnasium defines it."""

    metadata: Mapping[str, Any]

    def render(self) -> Any:
        """A frame (height, width, 3) uint8, where its render_mode is rgb_array."""


class Video:
    """A video file that is written frame by frame.  It gets its name when it is complete.

    path: ends in one of SUFFIXES.  Raises ConfigError where it does not, where a package is missing, or where the file
    cannot be written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path, self.name = absolute(path), str(path)
        if self.path.suffix not in SUFFIXES:
            raise ConfigError(f"--video must end in {' or '.join(SUFFIXES)}, but is {str(path)!r}")
        try:
            import imageio.v2
            import imageio_ffmpeg  # noqa: F401 (imageio takes it for .mp4)
        except ImportError:
            raise ConfigError('videos need packages that are not installed: pip install "mpies[video]"') from None
        self._imageio = imageio.v2
        self._writer: Any = None
        self._unfinished = self.path.with_name(f".{self.path.stem}.{os.getpid()}.tmp{self.path.suffix}")
        self._steps = 0  # so far
        self._stride = 1  # every so many steps one is rendered
        try:
            if self.path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            self._unfinished.touch()
        except OSError as error:
            cure = "it must be a file in a folder that you may write to"
            raise ConfigError(f"{self.name}: cannot be written ({error.strerror}); {cure}") from None

    def add_frame(self, environment: Renderable) -> None:
        """Add what the environment looks like now, unless this step is between two frames of the video.

        Raises EnvironmentProblem where it renders no image.
        """
        if self._writer is None:
            follow(environment)
        self._steps += 1
        if (self._steps - 1) % self._stride:
            return
        try:
            frame = np.asarray(environment.render())
        except NotImplementedError:  # gymnasium.Env's own
            frame = np.zeros(0)
        if frame.ndim != 3:
            raise EnvironmentProblem(f"it draws no pictures; {_NEEDS}")
        if self._writer is None:
            self._open(environment.metadata.get("render_fps") or 30)
        height, width = (size - size % 2 for size in frame.shape[:2])  # H.264 wants even sizes
        self._writer.append_data(frame[:height, :width, :3])

    def _open(self, steps_per_second: int) -> None:
        self._stride = math.ceil(steps_per_second / MAX_FRAMES[self.path.suffix])
        frames_per_second = steps_per_second / self._stride
        options: dict[str, Any] = {"fps": frames_per_second, "macro_block_size": 2}
        if self.path.suffix == ".gif":
            options = {"duration": 1000 / frames_per_second, "loop": 0}
        self._writer = self._imageio.get_writer(self._unfinished, mode="I", **options)

    def close(self, is_complete: bool) -> None:
        """End the file.  One that is complete is renamed to `path`, another one is removed."""
        try:
            if self._writer:
                self._writer.close()
                if is_complete:
                    os.replace(self._unfinished, self.path)
        finally:
            self._unfinished.unlink(missing_ok=True)


@contextmanager
def recording(path: str | Path | None) -> Iterator[Video | None]:
    """A Video that is complete unless the block raises; None without a path."""
    video = Video(path) if path else None
    try:
        yield video
    except BaseException:
        if video:
            video.close(is_complete=False)
        raise
    if video:
        video.close(is_complete=True)


def follow(environment: Renderable) -> None:
    """Take the camera `track` of a MuJoCo model, which follows the robot.  The default of gymnasium stands still."""
    renderer = getattr(getattr(environment, "unwrapped", None), "mujoco_renderer", None)
    if renderer is not None and renderer.camera_id in (None, -1):  # -1: the default
        cameras = [renderer.model.camera(index).name for index in range(renderer.model.ncam)]
        renderer.camera_id = cameras.index("track") if "track" in cameras else renderer.camera_id


@contextmanager
def visible_task(config: Config, video: Video | None, constants: Arrays | None = None) -> Iterator[Task]:
    """A Task whose environments render each step into the video, or into a window where that is None.

    EnvPool renders nothing, so gymnasium takes its place.  constants: of the policy, as for Task.
    Raises ConfigError where there is nothing to see, or no screen for a window, and EnvironmentProblem where the
    environment cannot be built.
    """
    section = config.environment
    if section.function is not None:
        raise ConfigError(f"{section.id} has no episodes to show")
    has_screen = any(name in os.environ for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    has_screen |= sys.platform in ("darwin", "win32")
    if not video and not has_screen:
        raise ConfigError("there is no screen here: record with --video FILE.mp4 or FILE.gif")
    if not has_screen:
        os.environ.setdefault("MUJOCO_GL", "egl")  # renders without a screen; read when mujoco is imported
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    changes = {
        "id": name_in_gymnasium(section.id.removeprefix("envpool:")),
        "backend": "gymnasium" if section.backend == "envpool" else section.backend,
        "kwargs": {**section.kwargs, "render_mode": "rgb_array" if video else "human"},
    }
    try:
        task = Task(config.model_copy(update={"environment": section.model_copy(update=changes)}), constants)
    except EnvironmentProblem as error:
        if error.__cause__ is None or not is_about_arguments(error.__cause__):
            raise
        reason = one_line(error.__cause__)  # training builds it without render_mode
        raise EnvironmentProblem(f"{section.id} cannot be shown: {reason}; {_NEEDS}") from error
    env = task.env
    assert isinstance(env, VectorEnv)  # functions were refused above
    env.watch = video.add_frame if video else None
    try:
        yield task
    finally:
        env.close()


def show_episodes(task: Task, batch: RolloutBatch, rollouts: range | None = None) -> npt.NDArray[np.float64]:
    """Play the episodes of a batch, or these rollouts of it, one after the other.  Returns their returns (r,).

    task: of visible_task.  Raises EnvironmentProblem where an episode fails.
    """
    returns = []
    for rollout in range(len(batch)) if rollouts is None else rollouts:
        rows, failures = play_alone(task.player, batch, [rollout])
        for message in failures.values():
            raise EnvironmentProblem(f"{task.config.environment.id} cannot be shown: {message}")
        returns.append(rows["total"][0])
    return np.array(returns)


def play_policy(
    path: str | Path,
    episodes: int,
    seed: int | None,
    video: str | Path | None,
    deterministic: bool = True,
    generation: int | None = None,
) -> tuple[int, npt.NDArray[np.float64]]:
    """Show held-out episodes of a policy.

    path, generation: as for `load_policy_of`.  seed and deterministic: as for `held_out_batch`.
    video: the file to record to, None for a window.
    Returns the policy's generation and the returns (episodes,).
    """
    policy = load_policy_of(path, generation)
    with recording(video) as recorder, visible_task(policy.config, recorder, policy.constants) as task:
        returns = show_episodes(task, held_out_batch(policy, task, episodes, seed, deterministic))
    return policy.generation, returns


def show_member(
    path: str | Path, generation: int, member: int, video: str | Path | None
) -> tuple[float, float, dict[int, str]]:
    """Replay a recorded member of a generation, and record its episodes to a file where `video` names one.

    Returns the recorded return, the replayed return, and the message of each episode that failed.
    """
    with recording(video) as recorder:
        recorded = load_member(path, generation, member)
        replayed, failures = recorded.replay()
        recorded.task.close()  # there may be no licence for a second object
        if recorder and not failures:
            policy = recorded.task.policy
            with visible_task(recorded.config, recorder, dict(policy.constants) if policy else None) as task:
                show_episodes(task, recorded.batch, recorded.rollouts)
    return recorded.recorded_return, replayed, failures
