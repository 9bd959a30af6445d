"""The tables that grow with a run: metrics.csv, evaluations.csv and ranks.json.

Every method raises OSError where the disk refuses, and TrainingFailed where somebody else has damaged the file.  After
an OSError the same call may be made again.
"""

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mpies.core.arrays import Float64s, Int64s
from mpies.runs.files import AppendOnlyFile, pack_checked, write_atomically
from mpies.runs.formats import ledger
from mpies.runs.formats.metrics import COLUMNS, Row, format_cell, format_header, format_row, read_lines, read_rows
from mpies.runs.lock import HEARTBEAT
from mpies.runs.snapshot import Evaluation

_HEADER = "generation,seconds,return,length\n"
_LINE = re.compile(r"([0-9]{1,18}),[^,]+,[^,]+,[0-9]+")  # of evaluations.csv


def as_record(row: Row, evaluation: Evaluation | None) -> dict[str, Any]:
    """What the ledger has of a generation for the text files: its row, and the episodes that evaluated its mean."""
    columns = [*COLUMNS, *(name for name in row if name not in COLUMNS)]
    record = {"row": (format_header(columns) + format_row(columns, row)).encode()}
    return record | ({"eval_returns": evaluation.returns, "eval_lengths": evaluation.lengths} if evaluation else {})


@dataclass
class History:
    """What the text files of a run are to show.

    rows: of metrics.csv as text, by generation.  newest: the generation that was made last; rows of later ones are no
    proof that they were evaluated.  short: generations whose row is what the ledger of an older mpies has of it.
    evaluations: lines of evaluations.csv, by generation.
    """

    rows: dict[int, dict[str, str]]
    newest: int
    short: list[int] = field(default_factory=list)
    evaluations: dict[int, str] = field(default_factory=dict)

    def until(self, generation: int) -> dict[int, dict[str, str]]:
        """The rows until a generation, in order, all with the same columns."""
        rows = {number: row for number, row in sorted(self.rows.items()) if number <= generation}
        columns = dict.fromkeys((name for row in rows.values() for name in row), "")
        return {number: columns | row for number, row in rows.items()}

    def episodes_until(self, generation: int) -> str:
        """What evaluations.csv is to have until a generation."""
        lines = "".join(lines for number, lines in sorted(self.evaluations.items()) if number <= generation)
        return _HEADER + lines if lines else ""


def read_history(run: Path) -> History:
    """The History of a run: what its ledger holds, and for the rest what its text files have.

    Raises Unreadable where the system refuses to read one of them.
    """
    rows = {int(row["generation"]): row for row in read_rows(run / "metrics.csv")}
    history = History(rows, max(rows, default=0))
    for line in read_lines(run / "evaluations.csv"):
        if found := _LINE.fullmatch(line):
            number = int(found[1])
            history.evaluations[number] = history.evaluations.get(number, "") + f"{line}\n"
    for record, _ in ledger.read_all(run / "ledger.bin"):
        generation = int(record["generation"])
        if "row" in record:
            header, cells = record["row"].item().decode().splitlines()
            row = rows[generation] = dict(zip(header.split(","), cells.split(","), strict=True))
            returns, lengths = record.get("eval_returns", np.zeros(0)), record.get("eval_lengths", np.zeros(0))
            history.evaluations[generation] = _format_episodes(row, returns, lengths)
            history.newest = max(history.newest, generation)
        else:
            known, present = _row_of_older(record), rows.get(generation, {"digest": ""})
            is_other = present.get("digest", known["digest"]) != known["digest"]
            rows[generation] = known if is_other else {**present, **known}
            history.short += [generation] if is_other else []
    return history


def _row_of_older(record: Mapping[str, Any]) -> dict[str, str]:
    """What the record of an older mpies has of a row of metrics.csv."""
    keys = {"generation": "generation", "digest": "digest"}
    keys |= {name: f"clock/{name}" for name in ("seconds", "episodes", "steps")}
    return {name: format_cell(record[key].item()) for name, key in keys.items() if key in record}


def _format_episodes(row: Row, returns: Float64s, lengths: Int64s) -> str:
    """The lines of evaluations.csv of a generation, of `row` in metrics.csv."""
    start = f"{row['generation']},{format_cell(row['seconds'])}"
    episodes = zip(returns.tolist(), lengths.tolist(), strict=True)
    return "".join(f"{start},{total:.9g},{length}\n" for total, length in episodes)


class TableFile(AppendOnlyFile):
    """metrics.csv or evaluations.csv, which is made again when a run goes on.

    content: that the file is to have at the beginning; '' for no file.
    again: a generation that is played again, so that its lines may go.
    keep: called with the file and its content where that has other lines, before they are removed.
    """

    def __init__(self, path: Path, content: str, again: int, keep: Callable[[Path, bytes], object]) -> None:
        super().__init__(path, 0)
        present = read_lines(path)
        known = content.split("\n") if content else present[:1]
        if any(not line.startswith(f"{again},") for line in {*present} - {*known}):
            keep(path, path.read_bytes())
        if content:
            self.replace(content.encode())
        else:
            path.unlink(missing_ok=True)


class MetricsFile(TableFile):
    """metrics.csv: a row for each generation.  rows: the first ones; all have the same columns."""

    def __init__(self, path: Path, rows: Sequence[Row], again: int, keep: Callable[[Path, bytes], object]) -> None:
        self._columns = list(rows[0]) if rows else []
        lines = [format_header(self._columns), *(format_row(self._columns, row) for row in rows)] if rows else []
        super().__init__(path, "".join(lines), again, keep)

    def add_row(self, row: Row) -> None:
        """Add the row of a generation, unless it was added last; earlier rows get an empty cell for a new column."""
        known = self._columns or COLUMNS
        columns = [*known, *(name for name in row if name not in known)]
        if columns != self._columns:
            empty = "," * (len(columns) - len(known))
            lines = self.read().decode().splitlines()[1:]
            self.replace("".join([format_header(columns), *(f"{line}{empty}\n" for line in lines)]).encode())
            self._columns = columns
        self.append(format_row(columns, row).encode(), key=row["generation"])


class EvaluationsFile(TableFile):
    """evaluations.csv: a row for each held-out episode that evaluated the mean.  metrics.csv has their mean alone."""

    def add_episodes(self, row: Row, evaluation: Evaluation) -> None:
        """Add the episodes that evaluated the generation of a row of metrics.csv, unless they were added last."""
        lines = _format_episodes(row, evaluation.returns, evaluation.lengths)
        self.append((lines if self.size else _HEADER + lines).encode(), key=row["generation"])


class RanksFile:
    """ranks.json: the idle share of each rank, every few seconds, as the mean since it was written last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: list[Float64s] = []  # of each generation since then
        self._written_at = -math.inf

    def write(self, idle: Float64s | None, generation: int, now: bool) -> None:
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
        write_atomically(self._path, pack_checked(values), sync=False)
        self._idle, self._written_at = [], time.monotonic()
