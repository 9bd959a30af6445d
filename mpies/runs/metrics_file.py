"""metrics.csv while a run is written: it grows by a row for each generation, and can be written again."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from mpies.runs.files import AppendOnlyFile, write_atomically
from mpies.runs.metrics import COLUMNS, Cell, Row, format_header, format_row


class MetricsFile:
    """Appends rows to metrics.csv, and keeps its content: about 300 bytes a generation.

    rows: that the file is to have at the beginning, in place of those that it has.  Every method raises OSError where
    the disk refuses; the same call may then be made again.
    """

    def __init__(self, path: Path, rows: Sequence[Mapping[str, Cell]]) -> None:
        self._path = path
        self._columns = list(rows[0]) if rows else []
        self._newest: Cell = None  # generation of the row that was added last
        if rows:
            self._write([format_header(self._columns), *(format_row(self._columns, row) for row in rows)])
        else:
            path.unlink(missing_ok=True)
            self._content, self._file = bytearray(), AppendOnlyFile(path, 0)

    def _write(self, lines: Iterable[str]) -> None:
        """Replace the file."""
        content = bytearray("".join(lines).encode())
        write_atomically(self._path, content)
        self._content, self._file = content, AppendOnlyFile(self._path, None)

    def append(self, row: Row) -> None:
        """Add the row of a generation, unless it was added last."""
        generation = row["generation"]
        if generation == self._newest:
            return
        self._add_columns(row)
        line = format_row(self._columns, row).encode()
        self._file.append(line)
        self._content += line
        self._newest = generation

    def _add_columns(self, row: Row) -> None:
        """Give the file a column for all that a row has, empty in earlier rows."""
        known = self._columns or COLUMNS
        columns = [*known, *(name for name in row if name not in known and name not in COLUMNS)]
        if columns != self._columns:
            empty = "," * (len(columns) - len(known))
            lines = self._content.decode().splitlines()[1:]
            self._write([format_header(columns), *(f"{line}{empty}\n" for line in lines)])
            self._columns = columns

    def is_intact(self) -> bool:
        """Whether nobody else has removed, shortened or replaced the file."""
        return self._file.is_intact()

    def restore(self) -> None:
        """Write the file again, with all rows."""
        self._write([self._content.decode()])

    def sync(self) -> None:
        """Wait until all rows are on disk."""
        self._file.sync()
