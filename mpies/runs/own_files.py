"""Which files a run consists of.  Nothing but training may write them."""

from pathlib import Path

from mpies.core.errors import ConfigError
from mpies.core.paths import absolute
from mpies.runs.lock import is_lock_file
from mpies.runs.reader import is_run

NAMES = {
    *("config.yaml", "metrics.csv", "evaluations.csv", "ledger.bin", "best.h5", "policy.h5"),
    *("finished.yaml", "ranks.json", "log.txt"),
}


def refuse_run_file(path: str | Path) -> None:
    """Raise ConfigError where a file that is to be written is one of a run's own, which would be damaged.

    Raises FileNotFoundError where the path is relative and the working directory was removed.
    """
    file = absolute(path)
    is_checkpoint = file.parent.name == "checkpoints"
    run = file.parent.parent if is_checkpoint else file.parent
    if (is_checkpoint or file.name in NAMES or is_lock_file(file.name)) and is_run(run):
        raise ConfigError(f"{path}: is a file of the run in {run}, and would be replaced; give another file")
