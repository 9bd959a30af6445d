"""metrics.jsonl: the rows of metrics.csv as JSON objects, one a line."""

import json
from collections.abc import Sequence
from pathlib import Path

from mpies.runs.files import AppendOnlyFile, write_atomically
from mpies.runs.metrics import COLUMNS, as_numbers, round_number
from mpies.runs.trackers.base import TextRow, Tracker

FILE = "metrics.jsonl"


class JsonLines(Tracker):
    """The JSON lines of the run at `path`.  Empty cells and infinite numbers, which JSON does not have, are null."""

    def __init__(self, path: Path) -> None:
        self._path = path / FILE

    def resume(self, rows: Sequence[TextRow]) -> None:
        write_atomically(self._path, b"".join(map(_line, rows)), sync=False)
        self._file = AppendOnlyFile(self._path, None)

    def is_intact(self) -> bool:
        return self._file.is_intact()

    def append(self, row: TextRow) -> None:
        self._file.append(_line(row), key=str(row["generation"]))


def _line(row: TextRow) -> bytes:
    # As many digits as metrics.csv has, and in its order, so that a line is the same when it is written again.
    columns = [*COLUMNS, *(name for name in row if name not in COLUMNS)]
    numbers = as_numbers({name: row.get(name) for name in columns})
    rounded = {name: round_number(value) if isinstance(value, float) else value for name, value in numbers.items()}
    return (json.dumps({**rounded, "digest": row.get("digest")}, allow_nan=False) + "\n").encode()
