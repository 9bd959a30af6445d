"""How fast a run is, told from its newest generations, and whether starting it again on more ranks pays."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from mpies.runs.formats.metrics import parse_count, read_metrics

if TYPE_CHECKING:  # pydantic takes long to import
    from mpies.config.schema import StopSection

RECENT = 5  # generations whose mean length counts
WORTH = 2  # stopping runs, to go on with other ranks, must save this many times what it costs


def recent_pace(run: Path, stop: "StopSection") -> tuple[float, float, int] | None:
    """Seconds of a generation of a run, lately, the seconds that are left at most, and its ranks.

    None before two generations since a rank 0 last began to write it, and where a cell of these is damaged.
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
    left = [seconds * (stop.generations - int(last["generation"]))]
    if stop.seconds is not None:
        left.append(stop.seconds - float(last["seconds"]))
    if stop.steps is not None:
        left.append(seconds * (stop.steps - float(last["steps"])) / max(steps, 1))
    return seconds, max(0.0, min(left)), max(1, parse_count(last["ranks"]))


def growth_pays(left: float, generation: float, ranks: int, more: int, start_up: float, grace: float) -> bool:
    """Whether to start again on `more` ranks than `ranks`.  All times are in seconds.

    It saves a share 1 - ranks/more of the time that is left.  It costs the start-up and, where a generation is longer
    than stop.grace, the play of that time, which is begun and thrown away.
    """
    saved = left * (1 - ranks / more)
    cost = start_up + (grace if generation > grace else 0.0)
    return math.isfinite(saved) and saved > WORTH * cost
