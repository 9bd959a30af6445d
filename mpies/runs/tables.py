"""The tables that grow with a run: metrics.csv, evaluations.csv and ranks.json.

Every method raises OSError where the disk refuses, and TrainingFailed where somebody else has damaged the file.  After
an OSError the same call may be made again.
"""

import json
import math
import re
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mpies.runs.files import AppendOnlyFile, write_atomically
from mpies.runs.lock import HEARTBEAT
from mpies.runs.metrics import COLUMNS, Row, format_header, format_row

_HEADER = b"generation,seconds,return,length\n"
_LINE = re.compile(rb"(\d+),[^,\n]+,[^,\n]+,\d+\n")


class MetricsFile(AppendOnlyFile):
    """metrics.csv: a row for each generation.

    rows: that the file is to have at the beginning, in place of those that it has.
    """

    def __init__(self, path: Path, rows: Sequence[Row]) -> None:
        super().__init__(path, 0)
        self._columns = list(rows[0]) if rows else []
        if rows:
            lines = [format_header(self._columns), *(format_row(self._columns, row) for row in rows)]
            self.replace("".join(lines).encode())
        else:
            path.unlink(missing_ok=True)

    def add_row(self, row: Row) -> None:
        """Add the row of a generation, unless it was added last."""
        self._add_columns(row)
        self.append(format_row(self._columns, row).encode(), key=row["generation"])

    def _add_columns(self, row: Row) -> None:
        """Give the file a column for all that a row has, empty in earlier rows."""
        known = self._columns or COLUMNS
        columns = [*known, *(name for name in row if name not in known)]
        if columns != self._columns:
            empty = "," * (len(columns) - len(known))
            lines = self.read().decode().splitlines()[1:]
            self.replace("".join([format_header(columns), *(f"{line}{empty}\n" for line in lines)]).encode())
            self._columns = columns


class EvaluationsFile(AppendOnlyFile):
    """evaluations.csv: a row for each held-out episode that evaluated the mean.  metrics.csv has their mean alone.

    generation: what the file has of later ones is cut off.
    """

    def __init__(self, path: Path, generation: int) -> None:
        content = path.read_bytes() if path.exists() else b""
        kept = _keep(content, generation)
        if not content.startswith(kept):
            write_atomically(path, kept)
        super().__init__(path, len(kept))
        self._is_empty = not kept

    def add_episodes(self, row: Row, returns: npt.NDArray[np.float64], lengths: npt.NDArray[np.int64]) -> None:
        """Add the episodes that evaluated a generation, unless they were added last.

        row: of the generation in metrics.csv.  returns, lengths: (episodes,), of the episodes that worked.
        """
        start = f"{row['generation']},{row['seconds']:.9g}"
        episodes = zip(returns.tolist(), lengths.tolist(), strict=True)
        lines = "".join(f"{start},{total:.9g},{length}\n" for total, length in episodes).encode()
        self.append(_HEADER + lines if self._is_empty else lines, key=row["generation"])
        self._is_empty = False


def _keep(content: bytes, generation: int) -> bytes:
    """What evaluations.csv has until this generation, without damaged lines; b"" where it is not such a file.

    A spreadsheet may have saved it with other line ends.
    """
    header, *lines = content.replace(b"\r\n", b"\n").splitlines(keepends=True) or [b""]
    if header != _HEADER:
        return b""
    return header + b"".join(line for line in lines if (found := _LINE.fullmatch(line)) and int(found[1]) <= generation)


class RanksFile:
    """ranks.json: the idle share of each rank, every few seconds, as the mean since it was written last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: list[npt.NDArray[np.float64]] = []  # of each generation since then
        self._written_at = -math.inf

    def write(self, idle: npt.NDArray[np.float64] | None, generation: int, now: bool) -> None:
        """Take note of a generation, and write the file where it is time, or `now`.

        idle: (ranks,) shares from 0 to 1; None where they were not measured.
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
