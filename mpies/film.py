"""Episodes to look at: in a window, or in a file."""

import os
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from envs import EnvironmentProblem
from mpies.config import ConfigError
from mpies.evaluate import HELD_OUT, load_policy
from mpies.rollouts import Work, play_alone
from mpies.task import Task

ENDINGS = (".mp4", ".gif")
GIF_FRAMES = 25  # a second at most: viewers slow down what is faster


class Film:
    """A video, one frame after the other; `path` holds it once it is complete."""

    def __init__(self, path):
        self.path = Path(path)
        if self.path.suffix not in ENDINGS:
            raise ConfigError(f"--video must end in {' or '.join(ENDINGS)}, but is {str(path)!r}")
        try:
            import imageio.v2
            import imageio_ffmpeg  # noqa: F401 (imageio takes it for .mp4)
        except ImportError:
            raise ConfigError('videos need packages that are not installed: pip install "mpies[video]"') from None
        self._imageio, self._writer = imageio.v2, None
        self._unfinished = self.path.with_name(f".{self.path.stem}.{os.getpid()}.tmp{self.path.suffix}")
        self.frames = 0

    def watch(self, environment):
        """Add what the environment looks like now."""
        frame = np.asarray(environment.render())
        if frame.ndim != 3:
            raise EnvironmentProblem("it gives no picture of itself (render_mode rgb_array)")
        if self._writer is None:
            self._open(environment.metadata.get("render_fps") or 30)
        if self.frames % self._every == 0:
            height, width = (size - size % 2 for size in frame.shape[:2])  # H.264 wants even sizes
            self._writer.append_data(frame[:height, :width, :3])
        self.frames += 1

    def _open(self, speed):
        if self.path.suffix == ".gif":
            self._every = -(-speed // GIF_FRAMES)
            options = {"duration": 1000 * self._every / speed, "loop": 0}
        else:
            self._every = 1
            options = {"fps": speed, "macro_block_size": 2}
        try:
            self._writer = self._imageio.get_writer(self._unfinished, mode="I", **options)
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be written ({error.strerror}); give another --video") from None

    def close(self, complete):
        """End the file, and give it its name if it is complete."""
        if self._writer:
            self._writer.close()
            if complete:
                os.replace(self._unfinished, self.path)
        self._unfinished.unlink(missing_ok=True)


@contextmanager
def filming(video):
    """A Film of `video`, complete if nothing is raised inside; None for a window."""
    film = Film(video) if video else None
    try:
        yield film
    except BaseException:
        if film:
            film.close(complete=False)
        raise
    if film:
        film.close(complete=True)


def visible(config, film):
    """The Task of a Config with environments that can be seen: never EnvPool's."""
    section = config.environment
    if section.function is not None:
        raise ConfigError(f"{section.id} has no episodes to look at")
    screen = any(name in os.environ for name in ("DISPLAY", "WAYLAND_DISPLAY")) or sys.platform in ("darwin", "win32")
    if not film and not screen:
        raise ConfigError("there is no screen here: record with --video FILE.mp4 or FILE.gif")
    if not screen:
        os.environ.setdefault("MUJOCO_GL", "egl")  # software where there is no graphics card; read at its import
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    changes = {
        "id": section.id.removeprefix("envpool:"),
        "backend": "gymnasium" if section.backend == "envpool" else section.backend,
        "kwargs": {**section.kwargs, "render_mode": "rgb_array" if film else "human"},
    }
    task = Task(config.model_copy(update={"environment": section.model_copy(update=changes)}))
    task.world.watch = film.watch if film else None
    return task


def show_episodes(config, work, normalization, film):
    """Play Work one episode after the other, to a Film or in a window.  Returns their returns (r,)."""
    task, totals = visible(config, film), []
    for rollout in range(len(work.seeds)):
        rows, failures = play_alone(task.player, work, normalization, [rollout])
        for message in failures.values():
            raise EnvironmentProblem(f"{config.environment.id} cannot be shown: {message}")
        totals.append(rows["total"][0])
    task.world.close()
    return np.array(totals)


def play_policy(path, episodes, seed, video):
    """Show the best policy of a run (or a policy file) on held-out episodes.

    video: a file, or None for a window.  Returns its generation and the returns (episodes,).
    """
    config, arrays, attributes = load_policy(path)

    def write(_rollout, out):
        out[:] = arrays["parameters"]

    with filming(video) as film:
        seeds = Task(config).evaluation_seeds(HELD_OUT, 0, episodes, seed)
        work = Work(seeds, np.zeros(episodes, bool), write, np.zeros((episodes, 0)))
        normalization = arrays["normalization"] if config.policy.normalize_observations else None
        returns = show_episodes(config, work, normalization, film)
    return int(attributes["generation"]), returns
