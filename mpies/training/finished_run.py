"""A run that is complete: how it ended, and how to train it further."""

import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpies.config.schema import Config
from mpies.core.paths import absolute
from mpies.runs.directory import check_directory
from mpies.runs.formats.checkpoint import checkpoint_path, list_checkpoints
from mpies.runs.formats.metrics import read_metrics
from mpies.runs.reader import RunView
from mpies.runs.snapshot import half_interval
from mpies.training.control import rule_that_holds
from mpies.training.learner import Clock
from mpies.training.progress import format_mean


@dataclass(frozen=True)
class FinishedRun:
    """The end of a run.

    reason: the stop rule that holds.  eval_mean, eval_interval: the evaluation of its last generation.
    """

    path: Path
    reason: str
    clock: Clock
    eval_mean: float
    eval_interval: float

    def describe(self, config: Config, out: Path) -> str:
        """How the run ended and how to train it further, in one line.

        config: as it is now.  out: the argument of --out that leads to this run.
        """
        clock, stop, place = self.clock, config.stop, shlex.quote(str(out))
        outcome = f"all {self.reason} done"
        cure = {
            "solved": f"--out {place} and another stop.target, or stop.target=null",
            "generations": f"--out {place} stop.generations={2 * clock.generation}",
            "steps": f"--out {place} stop.steps={2 * clock.steps}",
            "seconds": f"--out {place} stop.seconds={math.ceil(2 * clock.seconds)}",
        }[self.reason]
        if self.reason == "solved":
            outcome = f"solved, target {stop.target:g}"
        return (
            f"{self.path}: is complete ({outcome}; generation {clock.generation}, evaluation "
            f"{format_mean(self.eval_mean, self.eval_interval)}); to train it further, repeat the command with {cure}; "
            "for a new run, with another --out"
        )

    def values(self) -> dict[str, Any]:
        """What `describe` says, as names and values of a JSON object."""
        numbers = {"generation": self.clock.generation, "eval_mean": self.eval_mean}
        return {"reason": self.reason, "run": str(self.path), **numbers}


def find_finished_run(folder: Path, config: Config) -> FinishedRun | None:
    """The run in `folder` if it is complete and `config` asks for no more of it, else None.

    It reads text files alone: no checkpoint, and neither a noise table nor an environment is needed.  None also where
    the config is that of another run, or files are absent or damaged: then opening the run tells what is wrong.
    """
    path = absolute(folder)
    finished, rows = RunView(path).finished(), read_metrics(path)
    if not (finished and rows and list_checkpoints(path)[:1] == [checkpoint_path(path, int(rows[-1]["generation"]))]):
        return None
    row = rows[-1]
    if row["generation"] != str(finished.get("generation")):
        return None
    try:
        check_directory(path, config)
        clock = Clock(int(row["generation"]), int(row["episodes"]), int(row["steps"]), float(row["seconds"]))
        mean, deviation, episodes = (float(row[name]) for name in ("eval_mean", "eval_std", "eval_episodes"))
    except (KeyError, ValueError):
        return None
    solved = mean if finished.get("reason") == "solved" else -math.inf
    reason = rule_that_holds(config.stop, clock, solved)
    return FinishedRun(folder, reason, clock, mean, half_interval(deviation, episodes)) if reason else None
