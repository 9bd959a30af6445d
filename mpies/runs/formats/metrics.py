"""metrics.csv: a row for each generation."""

import math
from collections.abc import Mapping, Sequence
from numbers import Integral
from pathlib import Path

from mpies.core.errors import Unreadable
from mpies.runs.files import open_regular, reading

# The columns that every metrics.csv has; what the solver reports follows behind them.
COLUMNS = [
    *("generation", "seconds", "episodes", "steps"),
    *("return_mean", "return_std", "return_min", "return_max", "length_mean"),
    *("eval_mean", "eval_std", "failures", "ranks", "digest", "steps_per_second"),
    *("eval_episodes", "eval_length", "eval_rank", "idle_mean", "idle_max", "observations"),
    *("nodes", "starts", "paused"),
]
Cell = str | int | float | None
Row = Mapping[str, Cell]  # column names to values, or to their text; None is an empty cell
Numbers = dict[str, float | int | None]  # likewise, without the digest

# The columns of whole numbers.
_COUNTS = {"generation", "episodes", "steps", "failures", "ranks", "nodes", "starts", "eval_episodes", "observations"}


def format_header(columns: Sequence[str]) -> str:
    """The first line of the file."""
    return ",".join(columns) + "\n"


def format_row(columns: Sequence[str], row: Row) -> str:
    """A line of the file."""
    return ",".join(format_cell(row.get(name)) for name in columns) + "\n"


def format_cell(value: Cell) -> str:
    """A value as it stands in the file."""
    if value is None or isinstance(value, str):
        return value or ""
    return str(int(value)) if isinstance(value, Integral) else f"{value:.9g}"


def as_numbers(row: Row) -> Numbers:
    """The numbers of a row; None for a cell that is empty or NaN."""
    numbers: Numbers = {}
    for name, value in row.items():
        if name != "digest":
            number = math.nan if value in (None, "") else float(value)
            numbers[name] = None if math.isnan(number) else int(number) if name in _COUNTS else number
    return numbers


def parse_number(cell: str | float | None, default: float = math.nan) -> float:
    """The number in a cell as text; `default` where the cell is empty or damaged."""
    try:
        return float(cell or "")
    except ValueError:
        return default


def parse_count(cell: str | float | None) -> int:
    """The whole number in a cell as text, which a spreadsheet may have saved as 1.35E+11; 0 where it is damaged."""
    number = parse_number(cell)
    return int(number) if math.isfinite(number) else 0


def round_number(number: float, digits: int = 9) -> float | None:
    """So many digits of the number, as metrics.csv has nine; None where it is not finite, which JSON lacks."""
    return float(f"{number:.{digits}g}") if math.isfinite(number) else None


def format_return(value: float) -> str:
    """A return for people: with two decimals, or with three digits where these would show little of it."""
    if value == 0:
        return "0.00"
    if abs(value) < 0.1 or abs(value) >= 1e15:
        return f"{value:.3g}"
    return f"{value:.2f}"


def read_metrics(run: str | Path) -> list[dict[str, str]]:
    """The rows of a run's metrics.csv as text; [] without a file that can be read, for those who only look.

    Lines that are cut off or damaged are left out.
    """
    try:
        return read_rows(Path(run) / "metrics.csv")
    except Unreadable:
        return []


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a file such as metrics.csv, as `read_metrics` has them.  Raises Unreadable."""
    # No cell is quoted: a quotation mark is damage to its line.
    header, *lines = [line.split(",") for line in read_lines(path)] or [[]]
    rows = [dict(zip(header, line, strict=True)) for line in lines if len(line) == len(header)]
    return [row for row in rows if (number := row.get("generation", "")).isdecimal() and len(number) < 19]


def read_lines(path: Path) -> list[str]:
    """The complete lines of a text file without their ends, which a spreadsheet may have changed; [] without a file.

    Raises Unreadable.
    """
    try:
        with reading(path), open_regular(path) as file:
            content = file.read().decode(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [line.rstrip("\r") for line in content.split("\n")[:-1]]


def count_core_seconds(rows: Sequence[Mapping[str, str]]) -> float:
    """Seconds of training, summed over the ranks, whose number may change.

    rows: of metrics.csv, one at least; those with a damaged cell are left out.
    """
    import numpy as np  # here, since the supervisor imports this module

    times = np.array([[parse_number(row["seconds"]), parse_number(row["ranks"])] for row in rows])
    seconds, ranks = times[np.isfinite(times).all(1)].T
    return float(np.diff(seconds, prepend=0.0) @ ranks)


def read_digests(run: str | Path) -> list[str]:
    """The digest of each generation on record."""
    return [row["digest"] for row in read_metrics(run)]
