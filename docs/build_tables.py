"""Write the tables of recorded figures into README.md, benchmarks/README.md and docs/solvers.md.

    make docs            # or: python docs/build_tables.py

A table follows the line `<!-- table: NAME -->`.  All figures come from benchmarks/results/ and results/.
"""

import importlib.util
import json
import re
import statistics
from pathlib import Path
from typing import Any

from mpies.config.recipes import find_recipes
from mpies.report.records import describe_return, read_record

HOME = Path(__file__).resolve().parents[1]
FIGURES = HOME / "benchmarks" / "results"
PAGES = [HOME / "README.md", HOME / "benchmarks" / "README.md", HOME / "docs" / "solvers.md"]
SHOWN = ["walker2d", "ant", "minitaur_linear"]  # recipes in the README
SIZES = {166_673: "376-256-256-17", 1_000_391: "376-822-822-17"}  # layers, by the number of parameters


def time_to_score(every_row: bool) -> list[str]:
    """Seconds until a score: a row for each task, or for each task and trainer."""
    spec = importlib.util.spec_from_file_location("time_to_score", HOME / "benchmarks" / "time_to_score.py")
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    rows = json.loads((FIGURES / "time_to_score.json").read_text())
    return script.table(rows) if every_row else script.summary(rows)


def low_rank() -> list[str]:
    """What noise of low rank saves, for two perceptrons."""
    rows = json.loads((FIGURES / "between_rollouts_low_rank.json").read_text())
    lines = ["| perceptron | parameters | normals a member | update: sums over members | all between rollouts |"]
    lines.append("|---|---|---|---|---|")
    for full, low in zip(rows[::2], rows[1::2], strict=True):
        sums = _milliseconds(full["seconds"]["moments"], low["seconds"]["moments"])
        whole = _milliseconds(full["between_seconds"], low["between_seconds"])
        normals = f"{full['normals']:,}, low rank {low['normals']:,}"
        lines.append(f"| {SIZES[full['dimension']]} | {full['dimension']:,} | {normals} | {sums} | {whole} |")
    return lines


def _milliseconds(full: float, low: float) -> str:
    return f"{1000 * full:.0f} ms, low rank {1000 * low:.2g} ms"


def results() -> list[str]:
    """What some recipes reached."""
    lines = ["| recipe | solver | mean return over 100 episodes | training time |", "|---|---|---|---|"]
    for name in SHOWN:
        record: Any = read_record(name)
        seconds = statistics.median(seed["seconds"] for seed in record["seeds"])
        (ranks,) = {seed["ranks"] for seed in record["seeds"]}
        time = f"{seconds / 60:.0f} minutes" if seconds >= 1000 else f"{seconds:.0f} s"
        count = sum(seed["reached"] for seed in record["seeds"])
        reached = f"{count} of {len(record['seeds'])} seeds reached {record['mark']:,g}"
        (solver,) = re.findall(r"^# Solver: (\S+)", find_recipes()[name].read_text(), re.MULTILINE)
        solver = solver.rstrip(",.")
        where = f"{ranks} rank{'s' * (ranks > 1)}"
        lines.append(f"| {name} | {solver} | {describe_return(record)}, {reached} | {time} on {where} |")
    return lines


def make_tables() -> dict[str, list[str]]:
    """Name to lines of every table."""
    return {
        "seconds to the score": time_to_score(False),
        "seconds and steps to the score": time_to_score(True),
        "noise of low rank": low_rank(),
        "results of recipes": results(),
    }


def make_pages() -> dict[Path, str]:
    """Path to text of each page, with its tables written anew.  Raises KeyError for a table that nobody makes."""
    tables = make_tables()
    pattern = re.compile(r"(<!-- table: (.*?) -->\n\n)(?:\|.*\n)+")
    return {
        page: pattern.sub(lambda match: match[1] + "\n".join(tables[match[2]]) + "\n", page.read_text("utf-8"))
        for page in PAGES
    }


def main() -> None:
    """Write the pages."""
    for page, text in make_pages().items():
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
