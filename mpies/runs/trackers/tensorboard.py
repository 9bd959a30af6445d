"""TensorBoard events of a run, under the names of OpenAI's evolution-strategies-starter.

One file that grows by one record a generation.  When a run is resumed, a record that was cut off is removed and those
that are missing are written from metrics.csv, so every generation is there once.
"""

import struct
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mpies.core.errors import ConfigError
from mpies.runs.files import AppendOnlyFile
from mpies.runs.metrics import Cell
from mpies.runs.trackers.base import Tracker

FILE = "events.out.tfevents.mpies"

# Names in TensorBoard to columns of metrics.csv.
NAMES = {
    "EpRewMean": "return_mean",
    "EpRewStd": "return_std",
    "EpRewMin": "return_min",
    "EpRewMax": "return_max",
    "EpLenMean": "length_mean",
    "EvalEpRewMean": "eval_mean",
    "EvalEpRewStd": "eval_std",
    "EvalEpLenMean": "eval_length",
    "EvalPopRank": "eval_rank",
    "EvalEpCount": "eval_episodes",
    "Norm": "parameter_norm",
    "GradNorm": "gradient_norm",
    "UpdateRatio": "update_ratio",
    "Sigma": "sigma",
    "EpisodesSoFar": "episodes",
    "TimestepsSoFar": "steps",
    "UniqueWorkers": "ranks",
    "ObCount": "observations",
    "TimeElapsed": "seconds",
    "TimestepsPerSecond": "steps_per_second",
    "IdleShare": "idle_mean",
    "Failures": "failures",
}
# Those of the newest generation alone: differences of columns.
THIS_ITER = {"EpisodesThisIter": "episodes", "TimestepsThisIter": "steps", "TimeElapsedThisIter": "seconds"}


class TensorBoardEvents(Tracker):
    """The events of the run at `path`.  Raises ConfigError where tensorboardX is not installed."""

    def __init__(self, path: Path) -> None:
        if find_spec("tensorboardX") is None:
            raise ConfigError("tracking.tensorboard needs tensorboardX: pip install 'mpies[tensorboard]'")
        self._path = path / FILE
        self._previous: Mapping[str, Cell] = {}  # the row of the generation before

    def resume(self, rows: Sequence[Mapping[str, Cell]]) -> None:
        end, newest = self._complete_part([int(row["generation"] or 0) for row in rows])
        self._file = AppendOnlyFile(self._path, end)
        if not end:
            self._file.append(_record(_event(file_version="brain.Event:2")), key="head")
        self._previous = {}
        now, total = time.time(), _float(rows[-1]["seconds"]) or 0.0 if rows else 0.0
        for row in rows:
            if int(row["generation"] or 0) > newest:
                self.append(row, now - total + (_float(row["seconds"]) or 0.0))
            self._previous = row

    def is_intact(self) -> bool:
        return self._file.is_intact()

    def append(self, row: Mapping[str, Cell], when: float | None = None) -> None:
        """Add a row of metrics.csv.  when: seconds since 1970; default now."""
        from tensorboardX.proto.summary_pb2 import Summary

        values = {name: _float(row.get(column)) for name, column in NAMES.items()}
        for name, column in THIS_ITER.items():
            values[name] = (_float(row[column]) or 0.0) - (_float(self._previous.get(column)) or 0.0)
        summary = Summary(value=[Summary.Value(tag=n, simple_value=v) for n, v in values.items() if v is not None])
        generation = int(row["generation"] or 0)
        event = _event(wall_time=when or time.time(), step=generation, summary=summary)
        self._file.append(_record(event), key=generation)
        self._previous = row

    def _complete_part(self, generations: Sequence[int]) -> tuple[int, int]:
        """The byte behind the last complete record before which none of the generations is missing; its generation.

        generations: of the rows of metrics.csv, which may lack some that have a record.
        """
        from tensorboardX.proto.event_pb2 import Event

        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return 0, 0
        end, newest = 0, -1
        missing = [*generations[::-1], 0]  # the next one last; the head is that of 0
        while len(content) >= end + 16:
            (length,) = struct.unpack_from("<Q", content, end)
            body = content[end + 12 : end + 12 + length]
            if content[end : end + length + 16] != _record(body):
                break
            step = Event.FromString(body).step
            if not (missing and newest < step <= missing[-1]):
                break
            if step == missing[-1]:
                missing.pop()
            end, newest = end + length + 16, step
        return end, max(newest, 0)


def _event(**fields: Any) -> bytes:
    from tensorboardX.proto.event_pb2 import Event

    return bytes(Event(**{"wall_time": time.time(), **fields}).SerializeToString())


def _record(body: bytes) -> bytes:
    """A TFRecord: length, its checksum, body, its checksum."""
    from tensorboardX.record_writer import masked_crc32c

    length = struct.pack("<Q", len(body))
    return length + struct.pack("<I", masked_crc32c(length)) + body + struct.pack("<I", masked_crc32c(body))


def _float(cell: Cell) -> float | None:
    return None if cell is None or cell == "" else float(cell)
