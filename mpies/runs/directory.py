"""A run directory: made, reopened, refused, removed.  One job at a time, and only for the config it was made with."""

import contextlib
import os
import shutil
from pathlib import Path

from mpies.config.loading import as_yaml, differences, resolved
from mpies.config.schema import Config
from mpies.config.trust import sign
from mpies.core.errors import ConfigError, RunError, RunLocked
from mpies.core.paths import absolute
from mpies.envs import choose_backend
from mpies.runs.files import explain_refusal, open_regular, reading, write_atomically
from mpies.runs.lock import LOCK_FILE, Lock, is_lock_file
from mpies.runs.machine import DECIDING, describe_machine, machines_of, versions
from mpies.runs.reader import RunView, is_run, read_run_config
from mpies.runs.writer import RunWriter

# The files of a run that training alone may write, beside its checkpoints and the lock.
NAMES = {
    *("config.yaml", "metrics.csv", "evaluations.csv", "ledger.bin", "best.h5", "policy.h5"),
    *("finished.yaml", "ranks.json", "log.txt"),
}


def open_run(
    path: str | Path, config: Config, resume: str = "auto", job: str | None = None, hosts: int = 1
) -> RunWriter:
    """Make or reopen a run directory and take its lock.

    resume: "auto" goes on where there is a run, "never" refuses it, "must" refuses where there is none.
    job: as for RunWriter.  hosts: number of hosts that train the run.
    Raises ConfigError when the directory holds a run of another config or cannot be written, Unreadable when a file
    of it cannot be read, RunLocked when another job writes it.
    """
    run = RunWriter(path, config, job)
    try:
        check_directory(path, config, resume)
        run.path.mkdir(parents=True, exist_ok=True)
        run.lock.acquire()  # before anything else is made: of several jobs only one makes the run
        check_directory(path, config, resume)  # another job may have made it in the meantime
        _check_readable(run)
        _write_config(run, config, hosts)
        (run.path / "checkpoints").mkdir(exist_ok=True)
        (run.path / "finished.yaml").unlink(missing_ok=True)
    except OSError as error:
        run.close()
        raise ConfigError(explain_refusal(path, error)) from None
    except BaseException:
        run.close()
        raise
    return run


def _check_readable(run: RunWriter) -> None:
    """Raise Unreadable where a file of the run cannot be read, or is a folder, before anything is written."""
    for name in sorted(NAMES):
        absent = contextlib.suppress(FileNotFoundError)
        with absent, reading(Path(run.name) / name), open_regular(run.path / name) as file:
            file.read(1)


def _write_config(run: RunWriter, config: Config, hosts: int) -> None:
    """Write config.yaml, with the packages in use, those it began with if they differ, and all machines, in order."""
    before, now = RunView(run.path).config(), versions()
    machines = list(dict.fromkeys([*machines_of(before), describe_machine(hosts)]))
    recorded = before["versions"] if isinstance(before.get("versions"), dict) else {}
    known = {name: str(recorded[name]) for name in DECIDING if name in recorded}
    other = ", ".join(f"{name} {now.get(name)} ({one} before)" for name, one in known.items() if now.get(name) != one)
    if other:
        run.warn(f"{run.name}: goes on with {other}, which may give other bits; config.yaml keeps the earlier versions")
    began = {"began": recorded.get("began", known)} if other or "began" in recorded else {}
    settings = resolved(config)
    signature = {"signature": found} if (found := sign(settings)) else {}
    values = {**settings, "versions": {**now, **began, "machines": machines, **signature}}
    write_atomically(run.path / "config.yaml", as_yaml(values).encode())


def find_backend(directory: str | Path | None, config: Config) -> str:
    """The backend that plays the run in this directory from its start to its end.

    Where the config says auto it is the one of the run that is there, or else what auto means here.
    """
    section = config.environment
    if section.backend != "auto" or section.function is not None:
        return section.backend
    if directory and is_run(run := absolute(directory)) and not is_empty(run):
        return _read_resolved(run, config).environment.backend
    return choose_backend(section.id, section.kwargs)


def _read_resolved(run: Path, config: Config) -> Config:
    """The config of the run that a config is to go on with.

    Where an earlier mpies has left its backend at auto, it is what that meant with the packages on record.
    """
    saved = read_run_config(run, config)
    section, versions = saved.environment, RunView(run).config().get("versions")
    if section.backend != "auto" or section.function is not None or not isinstance(versions, dict):
        return saved
    began = versions.get("began", versions)
    return with_backend(saved, choose_backend(section.id, section.kwargs, "envpool" in began))


def with_backend(config: Config, backend: str) -> Config:
    """The config with this backend of the environment."""
    return config.model_copy(update={"environment": config.environment.model_copy(update={"backend": backend})})


def check_directory(directory: str | Path, config: Config, resume: str = "auto") -> None:
    """Raise ConfigError or RunError where a run of this config must not be written to this directory.

    resume: as for open_run.  Nothing is changed.
    """
    path, name = absolute(directory), str(directory)
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
        changed = differences(resolved(_read_resolved(path, config)), resolved(config))
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


def refuse_run_file(path: str | Path) -> None:
    """Raise ConfigError where a file that is to be written is one of a run's, which would be damaged.

    Raises FileNotFoundError where the path is relative and the working directory was removed.
    """
    file = absolute(path)
    is_checkpoint = file.parent.name == "checkpoints"
    run = file.parent.parent if is_checkpoint else file.parent
    if (is_checkpoint or file.name in NAMES or is_lock_file(file.name)) and is_run(run):
        raise ConfigError(f"{path}: is a file of the run in {run}, and would be replaced; give another file")


def check_removable(path: str | Path) -> None:
    """Raise RunError where this is not the directory of a run, RunLocked where it, or a run in it, is being written."""
    folder = absolute(path)
    if folder.is_symlink():
        raise RunError(f"{path}: is a link; give the run that it points to")
    if "versions" not in RunView(folder).config():  # a config.yaml without them is one that a user wrote
        raise RunError(f"{path}: is not a run; give a run directory that mpies runs lists")
    for file in folder.rglob(LOCK_FILE):
        if RunView(file.parent).state() == "running":
            writer = RunView(file.parent).writer()
            raise RunLocked(f"{path}: is being written by process {writer['pid']} on {writer['host']}; stop it first")


def remove_run(path: str | Path) -> None:
    """Remove a run directory and all that is in it.

    It is renamed while this process holds its lock, so that a job that starts meanwhile finds no run, or keeps it.
    Raises what `check_removable` does, and RunError where the system refuses.
    """
    check_removable(path)
    folder = absolute(path).resolve()
    hidden = folder.with_name(f".{folder.name}.removed-{os.getpid()}")  # which no list of runs shows
    lock = Lock(folder)
    lock.acquire()
    try:
        folder.rename(hidden)
        try:
            shutil.rmtree(hidden)
        finally:  # what is left where that fails, or is interrupted, must not stay hidden
            with contextlib.suppress(OSError):
                hidden.rename(folder)
    except OSError as error:
        raise RunError(f"{path}: cannot be removed completely ({error.strerror}); remove the rest by hand") from None
    finally:
        lock.release()
