"""What follows a run beside metrics.csv, as its config asks for."""

from pathlib import Path

from mpies.config.schema import Config
from mpies.runs.files import Warn
from mpies.runs.trackers.base import Trackers
from mpies.runs.trackers.json_lines import JsonLines
from mpies.runs.trackers.tensorboard import TensorBoardEvents
from mpies.runs.trackers.wandb_run import WandbRun


def make_trackers(path: Path, config: Config, warn: Warn) -> Trackers:
    """The trackers of the run at `path`.  warn: called with a line where one fails.

    Raises ConfigError where a package that is needed is not installed.
    """
    section = config.tracking
    made = [
        *([TensorBoardEvents(path)] if section.tensorboard else []),
        *([JsonLines(path)] if section.json else []),
        *([WandbRun(path, config, section.wandb, warn)] if section.wandb else []),
    ]
    return Trackers(made, warn)
