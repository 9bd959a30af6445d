"""Make or reopen a run directory: one job at a time, and only for the config that it was made with."""

import contextlib
from pathlib import Path

from mpies.config.loading import differences, resolved, validate_config
from mpies.config.schema import Config
from mpies.core.errors import ConfigError
from mpies.core.paths import absolute
from mpies.runs.files import explain_refusal
from mpies.runs.lock import is_lock_file
from mpies.runs.machine import describe_machine
from mpies.runs.reader import is_run, read_config, read_machines
from mpies.runs.writer import RunWriter


def open_run(
    path: str | Path, config: Config, resume: str = "auto", job: str | None = None, hosts: int = 1
) -> RunWriter:
    """Make or reopen a run directory and take its lock.

    resume: "auto" goes on where there is a run, "never" refuses it, "must" refuses where there is none.
    job: as for RunWriter.  hosts: number of hosts that train the run.
    Raises ConfigError when the directory holds a run of another config or cannot be written, RunLocked when another
    job writes it.
    """
    run = RunWriter(path, config, job)
    try:
        check_directory(path, config, resume)
        run.path.mkdir(parents=True, exist_ok=True)
        run.lock.acquire()  # before anything else is made: of several jobs only one makes the run
        check_directory(path, config, resume)  # another job may have made it in the meantime
        run.machines = list(dict.fromkeys([*read_machines(path), describe_machine(hosts)]))
        run.write_config()
        (run.path / "finished.yaml").unlink(missing_ok=True)
    except OSError as error:
        run.close()
        raise ConfigError(explain_refusal(path, error)) from None
    except BaseException:
        run.close()
        raise
    return run


def check_directory(directory: str | Path, config: Config, resume: str = "auto") -> None:
    """Raise ConfigError or RunError where a run of this config must not be written to this directory.

    resume: as for open_run.  Nothing is changed.
    """
    path, name, new = absolute(directory), str(directory), resolved(config)
    # Listed first: where config.yaml is still absent afterwards, a job that makes the run has made nothing but this.
    entries = [entry.name for entry in path.iterdir()] if path.is_dir() else []
    has_others = not all(is_lock_file(entry) or entry.startswith(".config.yaml.") for entry in entries)
    has_config = (path / "config.yaml").exists()
    if has_config and not is_run(path):
        raise ConfigError(
            f"{name}: its config.yaml is not that of a run, and would be replaced; choose another --out, or rename it"
        )
    if has_config:
        if resume == "never":
            raise ConfigError(f"{name}: contains a run already; use --resume auto, choose another --out, or remove it")
        old = read_config(path)
        with contextlib.suppress(ConfigError):  # fills in keys that are newer than the run
            old = resolved(validate_config(old, f"{name}/config.yaml"))
        changed = differences(old, new)
        if changed and not is_empty(path):
            listed = "; ".join(f"{key}: {before!r} there, {now!r} now" for key, before, now in changed[:5])
            more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
            raise ConfigError(f"{name}: contains a run of another config ({listed}{more}); choose another --out")
    elif resume == "must":
        raise ConfigError(f"{name}: contains no run to resume; use --resume auto, or give the run's directory")
    elif has_others:
        raise ConfigError(f"{name}: is neither empty nor a run; choose another --out")


def is_empty(run: Path) -> bool:
    """Whether a run has ended before its start was on disk, such as one whose policy.init_from cannot be read.

    Nothing is lost if another config takes its place.
    """
    names = {entry.name for entry in run.iterdir() if not is_lock_file(entry.name)}
    return names <= {"config.yaml", "checkpoints", "log.txt"} and not list(run.glob("checkpoints/*"))
