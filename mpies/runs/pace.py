"""How fast a run is, told from its newest generations, and whether starting it again on more ranks pays."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mpies.runs.formats.metrics import parse_count, read_metrics

if TYPE_CHECKING:  # pydantic takes long to import
    from mpies.config.schema import StopSection

RECENT = 5  # generations whose mean length counts
WORTH = 2  # stopping runs, to go on with other ranks, must save this many times what it costs


@dataclass(frozen=True)
class Pace:
    """How fast a run is.  seconds: of a generation, lately.  left: generations at most."""

    seconds: float
    left: float


def recent_pace(run: Path, stop: "StopSection") -> tuple[Pace, int] | None:
    """The Pace of a run, and on how many ranks; None before two generations since a rank 0 last began to write it.

    None also where a cell of these generations is damaged.
    """
    rows = read_metrics(run)
    rows = [row for row in rows[-RECENT - 1 :] if row.get("starts") == rows[-1].get("starts")]
    if len(rows) < 2:
        return None
    first, last = rows[0], rows[-1]
    try:
        count = int(last["generation"]) - int(first["generation"])
        seconds = (float(last["seconds"]) - float(first["seconds"])) / count
        steps = (float(last["steps"]) - float(first["steps"])) / count
    except (ValueError, ZeroDivisionError):
        return None
    left = [float(stop.generations - int(last["generation"]))]
    if stop.seconds is not None:
        left.append((stop.seconds - float(last["seconds"])) / max(seconds, 1e-9))
    if stop.steps is not None:
        left.append((stop.steps - float(last["steps"])) / max(steps, 1))
    return Pace(seconds, max(0.0, min(left))), max(1, parse_count(last["ranks"]))


def growth_pays(pace: Pace, ranks: int, more: int, start_up: float, grace: float) -> bool:
    """Whether to start again on `more` ranks than `ranks`.

    It saves the generations that are left a share 1 - ranks/more of their time.  It costs the start-up (seconds) and,
    where a generation is longer than stop.grace (seconds), the play of that time, which is begun and thrown away.
    """
    saved = pace.left * pace.seconds * (1 - ranks / more)
    cost = start_up + (grace if pace.seconds > grace else 0.0)
    return math.isfinite(saved) and saved > WORTH * cost
