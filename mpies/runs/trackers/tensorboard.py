"""TensorBoard events of a run, under the names of OpenAI's evolution-strategies-starter.

The time of an event is when the run began, plus its seconds of training.
"""

import struct
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mpies.core.errors import ConfigError
from mpies.runs.formats.metrics import Cell, Row
from mpies.runs.trackers.base import RowFile

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


class TensorBoardEvents(RowFile):
    """The events of the run at `path`.  Raises ConfigError where tensorboardX is not installed."""

    def __init__(self, path: Path) -> None:
        if find_spec("tensorboardX") is None:
            raise ConfigError("tracking.tensorboard needs tensorboardX: pip install 'mpies[tensorboard]'")
        super().__init__(path / FILE)

    def begin(self, present: bytes) -> bytes:
        self._began = _read_beginning(present) or time.time()
        return _record(_event(file_version="brain.Event:2", wall_time=self._began))

    def encode(self, row: Row, previous: Row) -> bytes:
        from tensorboardX.proto.summary_pb2 import Summary

        values = {name: _float(row.get(column)) for name, column in NAMES.items()}
        for name, column in THIS_ITER.items():
            values[name] = (_float(row[column]) or 0.0) - (_float(previous.get(column)) or 0.0)
        summary = Summary(value=[Summary.Value(tag=n, simple_value=v) for n, v in values.items() if v is not None])
        when = self._began + (_float(row["seconds"]) or 0.0)
        return _record(_event(wall_time=when, step=int(row["generation"] or 0), summary=summary))


def _read_beginning(content: bytes) -> float | None:
    """When the run began, which the first event tells; None where it is damaged or absent."""
    from google.protobuf.message import DecodeError
    from tensorboardX.proto.event_pb2 import Event

    try:
        (length,) = struct.unpack_from("<Q", content)
        return float(Event.FromString(content[12 : 12 + length]).wall_time)
    except (struct.error, DecodeError):
        return None


def _event(**fields: Any) -> bytes:
    from tensorboardX.proto.event_pb2 import Event

    return bytes(Event(**fields).SerializeToString())


def _record(body: bytes) -> bytes:
    """A TFRecord: length, its checksum, body, its checksum."""
    from tensorboardX.record_writer import masked_crc32c

    length = struct.pack("<Q", len(body))
    return length + struct.pack("<I", masked_crc32c(length)) + body + struct.pack("<I", masked_crc32c(body))


def _float(cell: Cell) -> float | None:
    """The number in a cell, with as many digits as metrics.csv has; None where it is empty."""
    return None if cell is None or cell == "" else float(f"{float(cell):.9g}")
