"""How far the trials of a sweep are, and trials.csv with a row for each of them."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mpies.report.ranking import Result, Trial, rank_settings
from mpies.runs.files import write_atomically
from mpies.runs.lock import guarded
from mpies.runs.metrics import count_core_seconds, parse_count, parse_number, read_metrics
from mpies.runs.reader import RunView
from mpies.runs.snapshot import half_interval
from mpies.sweeps.folder import GUARD_FILE, SweepFolder
from mpies.sweeps.settings import as_text

COLUMNS = (
    *("seed", "state", "rung", "generations", "steps", "core_seconds", "eval_mean", "eval_interval", "rank"),
    *("name", "reason"),
)


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
        if trial.name in self._read and self.folder.is_known_to_have_ended(trial):
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
    text = io.StringIO()
    writer = csv.DictWriter(text, [*keys, *COLUMNS], lineterminator="\n")
    writer.writeheader()
    for one in results:
        settings = {key: as_text(value) for key, value in one.trial.settings.items()}
        writer.writerow(
            {
                **settings,
                **{"seed": one.trial.seed, "state": one.state, "rung": one.rung, "generations": one.generations},
                "steps": one.steps,
                **{"core_seconds": f"{one.core_seconds:.3f}", "eval_mean": _cell(one.eval_mean)},
                **{"eval_interval": _cell(one.eval_interval), "rank": ranks[one.trial.label] or ""},
                **{"name": one.trial.name, "reason": one.reason},
            }
        )
    return text.getvalue().encode()


def _cell(number: float) -> str:
    return "" if math.isnan(number) else f"{number:.9g}"
