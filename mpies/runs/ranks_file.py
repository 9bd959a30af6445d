"""ranks.json: how long each rank was idle lately."""

import json
import math
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mpies.runs.files import write_atomically
from mpies.runs.lock import HEARTBEAT


class RanksFile:
    """Writes the idle share of each rank every few seconds: the mean since it was written last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: list[npt.NDArray[np.float64]] = []  # of each generation since then
        self._written_at = -math.inf

    def write(self, idle: npt.NDArray[np.float64] | None, generation: int, now: bool) -> None:
        """Take note of a generation, and write the file where it is time, or `now`.

        idle: (ranks,) shares from 0 to 1; None where they were not measured.  Raises OSError.
        """
        if idle is None:
            return
        if self._idle and len(self._idle[-1]) != len(idle):  # ranks were lost
            self._idle = []
        self._idle.append(idle)
        if not now and time.monotonic() - self._written_at < HEARTBEAT:
            return
        shares = np.mean(self._idle, axis=0).round(3).tolist()
        values = {"first": generation - len(self._idle) + 1, "last": generation, "idle": shares}
        write_atomically(self._path, json.dumps(values).encode(), sync=False)
        self._idle, self._written_at = [], time.monotonic()
