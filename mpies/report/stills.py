"""Stills of a video of an episode, for where it cannot move."""

from pathlib import Path

import numpy as np

# Endings of videos to their types.
VIDEOS = {".mp4": "video/mp4", ".webm": "video/webm", ".gif": "image/gif"}
STILLS = 5  # frames at most
STILL_WIDTH = 240  # pixels


def encode_stills(video: Path) -> bytes | None:
    """STILLS frames at equal distances in time, beside each other, as a JPEG.

    None where imageio is not installed or cannot read the video.
    """
    try:
        import imageio.v3

        total = sum(1 for _ in imageio.v3.imiter(video))
        if not total:
            return None
        wanted = set(np.linspace(0, total - 1, min(STILLS, total)).round().astype(int).tolist())
        frames = [frame for number, frame in enumerate(imageio.v3.imiter(video)) if number in wanted]
        # Frames in shades of grey are (height, width).
        frames = [frame if frame.ndim == 3 else np.stack(3 * [frame], axis=-1) for frame in frames]
        step = max(1, frames[0].shape[1] // STILL_WIDTH)
        strip = np.concatenate([frame[::step, ::step, :3] for frame in frames], axis=1)
        return bytes(imageio.v3.imwrite("<bytes>", strip, extension=".jpg"))
    except Exception:  # of a file that is cut off, imageio's plugins raise many kinds, also SyntaxError and IndexError
        return None
