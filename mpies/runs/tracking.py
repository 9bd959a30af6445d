"""Which trackers a config asks for."""

from collections.abc import Callable
from pathlib import Path

from mpies.config.schema import Config
from mpies.runs.json_lines import JsonLines
from mpies.runs.services import MLflowRun, WandbRun
from mpies.runs.tensorboard import TensorBoardEvents
from mpies.runs.trackers import Trackers


def make_trackers(path: Path, config: Config, warn: Callable[[str], object]) -> Trackers:
    """The trackers of the run at `path`.  warn: called with a line where one fails.

    Raises ConfigError where a package that is needed is not installed.
    """
    section = config.tracking
    made = [
        *([TensorBoardEvents(path)] if section.tensorboard else []),
        *([JsonLines(path)] if section.json else []),
        *([WandbRun(path, config, warn)] if section.wandb else []),
        *([MLflowRun(path, config, warn)] if section.mlflow else []),
    ]
    return Trackers(made, warn)
