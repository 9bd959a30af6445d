"""The table of a comparison: on the terminal, and as CSV, JSON and LaTeX."""

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mpies.report.figures import write_file
from mpies.report.run_groups import RunGroup, changed_keys, format_setting, group_by_task
from mpies.report.seeds import bootstrap_interval, interquartile_mean

Row = dict[str, Any]  # what is known of a group; None where there is no number


def describe_group(group: RunGroup, machine: str = "") -> Row:
    """What is known of a group.

    iqm, low, high: interquartile mean of the runs' newest evaluations and its 95 % bootstrap interval.  steps, seconds:
    until the target was reached, median over the solved runs; seconds only where the machine is named.
    """
    final = group.final()[np.isfinite(group.final())]
    row: Row = {"task": group.task, "config": group.label, "runs": len(group.runs)}
    row["seeds"] = [run.config.get("seed") for run in group.runs]
    row["solved"] = len(group.solved) if group.targets else None
    row |= dict.fromkeys(("iqm", "low", "high", "median", "quartile_1", "quartile_3", "min", "max"))
    if len(final):
        low, high = bootstrap_interval(final[:, None])
        row |= {"iqm": interquartile_mean(final[:, None]).item(), "low": low.item(), "high": high.item()}
        names = ("median", "quartile_1", "quartile_3", "min", "max")
        row |= zip(names, np.percentile(final, [50, 25, 75, 0, 100]).tolist(), strict=True)
    row["steps"] = group.at_target("steps")
    if machine:
        row["seconds"] = group.at_target("seconds")
    return row


def tabulate(groups: Sequence[RunGroup], machine: str = "") -> list[tuple[str, ...]]:
    """Headings, then a row of text for each group."""
    has_tasks = len(group_by_task(groups)) > 1
    heads = ["config", "runs", "solved", "evaluation, IQM", "95 % interval", "min to max", "steps to target"]
    table = [(*["task"] * has_tasks, *heads, *([f"seconds on {machine}"] if machine else []))]
    for group in groups:
        row = describe_group(group, machine)
        solved = "no target" if row["solved"] is None else f"{row['solved']} of {row['runs']}"
        cells = [row["config"], str(row["runs"]), solved, _text(row["iqm"])]
        cells.append("-" if row["runs"] < 2 or row["iqm"] is None else f"{_text(row['low'])} to {_text(row['high'])}")
        cells.append("-" if row["runs"] < 2 or row["iqm"] is None else f"{_text(row['min'])} to {_text(row['max'])}")
        cells.append(_text(row["steps"], ",.0f"))
        cells += [_text(row["seconds"], ",.1f")] if machine else []
        table.append((*[row["task"]] * has_tasks, *cells))
    return table


def _text(number: float | None, form: str = "") -> str:
    """A number for people; '-' for None."""
    if number is None:
        return "-"
    if not form:
        form = ".3g" if 0 < abs(number) < 0.1 else ",.2f"
    return f"{number:{form}}"


def write_tables(groups: Sequence[RunGroup], out: Path, machine: str = "") -> Iterator[Path]:
    """Write comparison.csv, comparison.json and comparison.tex into a folder; yields the path of each."""
    for kind, make in (("csv", as_csv), ("json", as_json), ("tex", as_latex)):
        write_file(out / f"comparison.{kind}", make(groups, machine).encode())
        yield out / f"comparison.{kind}"


def as_csv(groups: Sequence[RunGroup], machine: str = "") -> str:
    """A line for each group: what is known of it, then the settings in which the groups differ."""
    keys = changed_keys([group.settings for group in groups])
    text = io.StringIO()
    rows = [describe_group(group, machine) for group in groups]
    writer = csv.DictWriter(text, [*(rows[0] if rows else ()), *keys], lineterminator="\n")
    writer.writeheader()
    for group, row in zip(groups, rows, strict=True):
        settings = {key: format_setting(group.settings[key]) for key in keys if key in group.settings}
        writer.writerow({**row, "seeds": " ".join(map(str, row["seeds"])), **settings})
    return text.getvalue()


def as_json(groups: Sequence[RunGroup], machine: str = "") -> str:
    """All groups with their settings, and with the results of each of their runs."""
    found = [
        {**describe_group(group, machine), "settings": group.settings, "results": _describe_runs(group, machine)}
        for group in groups
    ]
    return json.dumps({"machine": machine or None, "groups": found}, indent=1, default=str) + "\n"


def _describe_runs(group: RunGroup, machine: str) -> list[Row]:
    described = []
    for run, final in zip(group.runs, group.final().tolist(), strict=True):
        row = {"run": str(run.path), "seed": run.config.get("seed"), "ended": run.reason or None}
        row |= {"generations": int(run["generation"][-1]), "steps": int(run["steps"][-1])}
        row |= {"seconds": float(run["seconds"][-1])} if machine else {}
        described.append({**row, "evaluation": None if math.isnan(final) else final})
    return described


def as_latex(groups: Sequence[RunGroup], machine: str = "") -> str:
    """A table for LaTeX; it needs the package booktabs."""
    heads, *rows = tabulate(groups, machine)
    columns = "l" * (1 + (heads[0] == "task")) + "r" * (len(heads) - 1 - (heads[0] == "task"))
    lines = [" & ".join(map(_escape, row)) + r" \\" for row in rows]
    return "\n".join(
        [
            "% IQM: interquartile mean over seeds, with its 95 % bootstrap interval.  Needs \\usepackage{booktabs}.",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            " & ".join(map(_escape, heads)) + r" \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _escape(text: str) -> str:
    """A text for LaTeX; negative numbers get a minus."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    escaped = "".join(special.get(letter, f"\\{letter}" if letter in "&%$#_{}" else letter) for letter in text)
    return re.sub(r"(?<!\S)-\d[\d.,e+-]*(?!\S)", r"$\g<0>$", escaped)
