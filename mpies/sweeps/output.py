"""What `mpies sweep` prints: a line for each trial that ends, and a table of the settings at the end."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from mpies.core.text import align, escape
from mpies.report.ranking import Result, rank_settings
from mpies.sweeps.settings import as_text
from mpies.sweeps.table import ResultReader
from mpies.training.logs import format_entry, is_json_wanted, output_may_fail
from mpies.training.progress import format_mean

ROWS = 40  # settings that the table shows


def print_result(result: Result, ended: int, total: int, out: str) -> None:
    """Print a trial that has ended on standard output."""
    message = f"[{ended}/{total}] {describe_trial(result, out)}"
    severity = "WARNING" if result.state == "failed" else "INFO"
    with output_may_fail():
        print(format_entry(severity, message, {}) if is_json_wanted() else escape(message), flush=True)


def describe_trial(result: Result, out: str) -> str:
    """A trial that has ended, in one line."""
    if result.state == "failed":
        return f"{out}/{result.trial.name}: failed after generation {result.generations}: {result.reason}"
    evaluation = "" if math.isnan(result.eval_mean) else f", {format_mean(result.eval_mean, result.eval_interval)}"
    return (
        f"{out}/{result.trial.name}: {result.state}{evaluation}; generation {result.generations}, "
        f"{result.steps:,} steps, {result.core_seconds:.1f} core seconds"
    )


def print_ending(reader: ResultReader) -> None:
    """Print the table of the settings, and a line that says how the sweep ended."""
    folder, results = reader.folder, reader.refresh()
    total, out = folder.total, folder.name
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
            print_standings(results, folder.sweep.varied)
        print(escape(message), flush=True)


def print_standings(results: Sequence[Result], varied: Sequence[str]) -> None:
    """Print the table of the settings, the best first.  varied: the keys that vary."""
    heading, *rows = format_standings(results, varied)
    print(escape(align([heading, *rows[:ROWS]])), flush=True)
    if len(rows) > ROWS:
        print(f"and {len(rows) - ROWS} more", flush=True)


def format_standings(results: Sequence[Result], keys: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """A heading and a row of text for each of the settings, the best first.  keys: of the config, that vary."""
    short = [key.rpartition(".")[2] for key in keys]
    heads = short if len({*short}) == len(short) else keys
    yield ("rank", *heads, "evaluation", "trials", "solved", "steps", "core seconds")
    for one in rank_settings(results):
        known = one.describe(keys)
        yield (
            str(one.rank or "-"),
            *(as_text(one.settings[key]) for key in keys),
            "-" if math.isnan(one.mean) else format_mean(one.mean, one.interval),
            f"{known['finished']} of {known['seeds']}" + (f", {known['failed']} failed" if known["failed"] else ""),
            str(known["solved"]),
            f"{known['steps']:,}",
            f"{known['core_seconds']:,.1f}",
        )
