"""How far the trials of a sweep are: trials.csv with a row for each of them, and what `mpies sweep` prints of them."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from mpies.core.text import align, escape
from mpies.report.compare.ranking import Result, Trial, rank_settings, table_as_csv
from mpies.runs.files import write_atomically
from mpies.runs.formats.metrics import count_core_seconds, parse_count, parse_number, read_metrics, round_number
from mpies.runs.lock import guarded
from mpies.runs.reader import RunView
from mpies.runs.snapshot import half_interval
from mpies.sweeps.folder import GUARD_FILE, SweepFolder
from mpies.sweeps.settings import as_text
from mpies.training.logs import format_entry, is_json_wanted, output_may_fail
from mpies.training.progress import format_mean

COLUMNS = (
    *("seed", "state", "rung", "generations", "steps", "core_seconds", "eval_mean", "eval_interval", "rank"),
    *("name", "reason"),
)
ROWS = 40  # settings that the table shows


class ResultReader:
    """The results of a sweep's trials, read again only where a run has changed."""

    def __init__(self, folder: SweepFolder) -> None:
        self.folder = folder
        self._read: dict[str, tuple[Any, Result]] = {}  # name to what tells whether the run has changed, and its result

    def refresh(self) -> list[Result]:
        """The Result of each trial, in their order."""
        self.folder.refresh()
        return [self.read(trial) for trial in self.folder.trials]

    def read(self, trial: Trial) -> Result:
        """The Result of a trial."""
        if trial.name in self._read and trial.name in self.folder.done:
            known = self._read[trial.name][1]
            if known.is_finished or known.state == "failed":
                return known
        view, state = RunView(self.folder.path / trial.name), self.folder.state(trial)
        rung = self.folder.halving.rung_of(trial) if self.folder.halving else 0
        stamp = (state, rung, view.stamp("metrics.csv"), view.stamp("finished.yaml"))
        if trial.name not in self._read or self._read[trial.name][0] != stamp:
            self._read[trial.name] = stamp, replace(self._make(trial, state, view), rung=rung)
        return self._read[trial.name][1]

    def _make(self, trial: Trial, state: str, view: RunView) -> Result:
        reason = self.folder.failure(trial)
        if state in ("finished", "waiting", "dropped"):
            reason = str(view.finished().get("reason", ""))
            if not reason and state != "finished" and self.folder.halving:  # killed between its last row and its end
                reason = self.folder.halving.options.unit
            state = "solved" if reason == "solved" and state == "finished" else state
        rows = read_metrics(view.folder)
        if not rows:
            return Result(trial, state, reason=reason)
        mean, interval = math.nan, math.nan
        evaluated = [row for row in rows if row["eval_mean"]]
        if evaluated:
            mean, std, episodes = (parse_number(evaluated[-1][k]) for k in ("eval_mean", "eval_std", "eval_episodes"))
            interval = half_interval(std, episodes)
        newest = rows[-1]
        return Result(
            *(trial, state, int(newest["generation"]), parse_count(newest["steps"]), count_core_seconds(rows)),
            *(mean, interval, reason),
        )


def write_table(results: ResultReader) -> None:
    """Write trials.csv as the runs are now.  Any job may do so at any time."""
    folder = results.folder
    with guarded(folder.path / GUARD_FILE):
        write_atomically(folder.path / "trials.csv", _as_csv(results.refresh(), list(folder.sweep.vary)), sync=False)


def _as_csv(results: Sequence[Result], keys: Sequence[str]) -> bytes:
    ranks = {one.results[0].trial.label: one.rank for one in rank_settings(results)}
    rows = []
    for one in results:
        settings = {key: as_text(value) for key, value in one.trial.settings.items()}
        numbers = {"core_seconds": f"{one.core_seconds:.3f}", "rank": ranks[one.trial.label] or None}
        evaluation = {name: round_number(getattr(one, name)) for name in ("eval_mean", "eval_interval")}
        rows.append({**settings, **vars(one.trial), **vars(one), **numbers, **evaluation})
    return table_as_csv([*keys, *COLUMNS], rows).encode()


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
