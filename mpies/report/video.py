"""Videos of episodes, written frame by frame."""

import contextlib
import errno
import itertools
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np

from mpies.core.errors import ConfigError, EnvironmentProblem, import_extra
from mpies.core.paths import absolute
from mpies.runs.files import check_writable, writing

# Endings of videos to their types.
VIDEOS = {".mp4": "video/mp4", ".webm": "video/webm", ".gif": "image/gif"}
# Of what is recorded, frames a second at most: viewers slow faster GIFs down, and drawing takes most of the time.
MAX_FRAMES = {".mp4": 60, ".gif": 25}
SUFFIXES = tuple(MAX_FRAMES)
RENDERING = "its constructor must accept render_mode, and with render_mode rgb_array render must return an image"


class Video:
    """A video file that is written frame by frame in a `with` block.  It gets its name when the block ends well.

    path: ends in one of SUFFIXES.  Raises ConfigError where it does not, where a package is missing, or where the file
    cannot be written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path, self.name = absolute(path), str(path)
        if self.path.suffix not in SUFFIXES:
            raise ConfigError(f"--video must end in {' or '.join(SUFFIXES)}, but is {str(path)!r}")
        packages = "imageio_ffmpeg", "imageio.v2"  # imageio takes the former for .mp4
        self._imageio = import_extra("video", "videos need packages that are not installed", *packages)
        self._writer: Any = None
        self._unfinished = self.path.with_name(f".{self.path.stem}.{os.getpid()}.tmp{self.path.suffix}")
        self._failure = ""  # why the file cannot be written
        self._steps = 0  # so far
        self._stride = 1  # every so many steps one is rendered
        with writing(self.name):
            check_writable(self.path)

    def add_frame(self, environment: Any) -> None:
        """Add what an environment of gymnasium looks like now, unless this step is between two frames of the video.

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
            raise EnvironmentProblem(f"it draws no pictures; {RENDERING}")
        if self._writer is None:
            self._open(environment.metadata.get("render_fps") or 30)
        height, width = (size - size % 2 for size in frame.shape[:2])  # H.264 wants even sizes
        with self._noting_failure():
            if not self._failure:
                self._writer.append_data(frame[:height, :width, :3])

    def _open(self, steps_per_second: int) -> None:
        self._stride = math.ceil(steps_per_second / MAX_FRAMES[self.path.suffix])
        frames_per_second = steps_per_second / self._stride
        options: dict[str, Any] = {"fps": frames_per_second, "macro_block_size": 2}
        if self.path.suffix == ".gif":
            options = {"duration": 1000 / frames_per_second, "loop": 0}
        self._writer = self._imageio.get_writer(self._unfinished, mode="I", **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if self._writer:
                with self._noting_failure():
                    self._writer.close()
                    next(iter(self._imageio.get_reader(self._unfinished)))  # ffmpeg may have failed without a word
                if kind is None and self._failure:
                    raise OSError(errno.ENOSPC, f"{self.name}: {self._failure}, nothing was recorded")
                if kind is None:
                    os.replace(self._unfinished, self.path)
        finally:
            self._unfinished.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _noting_failure(self) -> Iterator[None]:
        """Remember why the file could not be written, such as a full disk, for the end of the recording."""
        try:
            yield
        except Exception as error:  # imageio raises many kinds
            self._failure = self._failure or getattr(error, "strerror", None) or "ffmpeg failed"


def recording(path: str | Path | None) -> "contextlib.AbstractContextManager[Video | None]":
    """A Video; None without a path."""
    return Video(path) if path else contextlib.nullcontext()


def read_poster(video: Path) -> bytes:
    """A frame of a video as a JPEG, to be shown before it is played; b"" where none can be read."""
    with contextlib.suppress(Exception):  # a damaged video raises many kinds, and the page does without
        import imageio.v3

        frames = list(itertools.islice(imageio.v3.imiter(video, plugin="FFMPEG"), 30))  # from early in the episode
        return bytes(imageio.v3.imwrite("<bytes>", frames[-1], extension=".jpg"))
    return b""


def follow(environment: Any) -> None:
    """Take the camera `track` of a MuJoCo model, which follows the robot.  The default of gymnasium stands still."""
    renderer = getattr(getattr(environment, "unwrapped", None), "mujoco_renderer", None)
    if renderer is not None and renderer.camera_id in (None, -1):  # -1: the default
        cameras = [renderer.model.camera(index).name for index in range(renderer.model.ncam)]
        renderer.camera_id = cameras.index("track") if "track" in cameras else renderer.camera_id
