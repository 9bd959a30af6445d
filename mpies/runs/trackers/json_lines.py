"""metrics.jsonl: the rows of metrics.csv as JSON objects, one a line."""

import json
from pathlib import Path

from mpies.runs.formats.metrics import COLUMNS, Row, as_numbers, round_number
from mpies.runs.trackers.base import RowFile

FILE = "metrics.jsonl"


class JsonLines(RowFile):
    """The JSON lines of the run at `path`.  Empty cells and infinite numbers, which JSON does not have, are null."""

    def __init__(self, path: Path) -> None:
        super().__init__(path / FILE)

    def encode(self, row: Row, previous: Row) -> bytes:
        # As many digits as metrics.csv has, and in its order, so that a line is the same when it is written again.
        columns = [*COLUMNS, *(name for name in row if name not in COLUMNS)]
        numbers = as_numbers({name: row.get(name) for name in columns})
        rounded = {name: round_number(value) if isinstance(value, float) else value for name, value in numbers.items()}
        return (json.dumps({**rounded, "digest": row.get("digest")}, allow_nan=False) + "\n").encode()
