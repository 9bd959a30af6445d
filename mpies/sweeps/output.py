"""What `mpies sweep` prints: a line for each trial that ends, and a table of the settings at the end."""

from collections import Counter
from collections.abc import Sequence

from mpies.core.text import escape
from mpies.report.comparison_table import print_table
from mpies.report.ranking import Result
from mpies.sweeps.table import describe_trial, format_standings
from mpies.training.logs import output_may_fail
from mpies.training.progress import format_entry, is_json_wanted

ROWS = 40  # settings that the table shows


def print_result(result: Result, ended: int, total: int, out: str) -> None:
    """Print a trial that has ended on standard output."""
    message = f"[{ended}/{total}] {describe_trial(result, out)}"
    severity = "WARNING" if result.state == "failed" else "INFO"
    with output_may_fail():
        print(format_entry(severity, message, {}) if is_json_wanted() else escape(message), flush=True)


def print_ending(results: Sequence[Result], total: int, out: str, varied: Sequence[str]) -> None:
    """Print the table of the settings, and a line that says how the sweep ended.

    total: of trials, those that a sampler has yet to propose among them.  out: its folder.  varied: the keys that vary.
    """
    counts = Counter(one.state for one in results)
    left = total - len(results) + sum(counts[state] for state in ("new", "stopped", "waiting"))
    parts = [f"{counts['finished'] + counts['solved']} of {total} trials finished"]
    parts += [f"{counts['dropped']} dropped by halving"] if counts["dropped"] else []
    parts += [f"{counts['failed']} failed (--retry tries them again)"] if counts["failed"] else []
    parts += [f"{counts['running']} trained by other jobs"] if counts["running"] else []
    parts += [f"{left} left; the same command continues"] if left else []
    message = f"{out}: {', '.join(parts)}; {out}/trials.csv has all of them"
    with output_may_fail():
        if is_json_wanted():
            print(format_entry("INFO", message, {}), flush=True)
            return
        if counts["new"] < len(results):
            print_standings(results, varied)
        print(escape(message), flush=True)


def print_standings(results: Sequence[Result], varied: Sequence[str]) -> None:
    """Print the table of the settings, the best first.  varied: the keys that vary."""
    heading, *rows = format_standings(results, varied)
    print_table([heading, *rows[:ROWS]])
    if len(rows) > ROWS:
        print(f"and {len(rows) - ROWS} more", flush=True)
