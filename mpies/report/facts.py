"""What is known of a run, as pairs of a name and its value in words."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from mpies.core.text import counted
from mpies.report.curves import Curves
from mpies.runs.metrics import format_return

REASONS = {
    "": "not complete: still running, or stopped",
    "solved": "solved: the target was reached twice, the second time on fresh episodes",
    "generations": "all generations done",
    "steps": "all steps done",
    "seconds": "all seconds used",
    "callback": "ended by a callback",
    "dropped": "dropped by halving, as other settings of the sweep were better",
    "waiting": "end of a rung of halving, of which other trials have not ended",
}

MOST_CHANGES = 20  # changes of the number of ranks that a report names


def list_facts(curves: Curves) -> Iterator[tuple[str, str]]:
    """The rows of the table: a name and its value in words."""
    evaluated = np.flatnonzero(curves.is_evaluated)
    last = {name: values[-1] for name, values in curves.columns.items()}
    yield "seed", str(curves.config["seed"])
    if curves.machines:
        yield "machine", "; then ".join(curves.machines)
    yield "end", REASONS.get(curves.reason, curves.reason)
    if len(evaluated):
        at = evaluated[-1]
        mean, interval, generation = curves["eval_mean"][at], curves.interval[at], curves["generation"][at]
        episodes = curves["eval_episodes"][at] if "eval_episodes" in last else np.nan
        if np.isnan(episodes):  # of a run so old that it has no such column, or the cell is damaged
            episodes = curves.config["evaluation"]["episodes"]
        ends = f"95 % confidence {format_return(mean - interval)} to {format_return(mean + interval)}, "
        yield (
            "final evaluation" if curves.reason else "newest evaluation",
            f"mean return {format_return(mean)}, {'' if np.isnan(interval) else ends}over "
            f"{counted(round(episodes), 'held-out episode')} of the search distribution's mean, generation "
            f"{generation:.0f}",
        )
    if curves.target is not None:
        yield "target", f"{curves.target:g}"
    yield "generations", f"{last['generation']:,.0f}"
    yield "training", f"{last['steps']:,.0f} steps, {last['episodes']:,.0f} episodes, {last['seconds']:,.1f} s"
    yield from list_job_facts(curves)
    yield "members with an episode that failed", f"{np.nansum(curves['failures']):,.0f}"


def list_job_facts(curves: Curves) -> Iterator[tuple[str, str]]:
    """The rows of the table about ranks and nodes: how many there were, and where their number changed."""
    yield "ranks", _numbers(curves["ranks"])
    if "nodes" in curves.columns:
        yield "nodes", _numbers(curves["nodes"])
    rows = sorted((int(row), name) for name, rows in curves.changes.items() for row in rows)
    if rows:
        listed = [
            f"{name} from generation {curves['generation'][row]:.0f} on ({curves['ranks'][row]:.0f})"
            for row, name in rows[:MOST_CHANGES]
        ]
        more = f"; and {len(rows) - MOST_CHANGES} more" if len(rows) > MOST_CHANGES else ""
        yield "changes", "; ".join(listed) + more


def _numbers(column: npt.NDArray[np.float64]) -> str:
    """The different whole numbers of a column."""
    return ", ".join(str(number) for number in sorted({int(value) for value in column[np.isfinite(column)]}))
