"""The exit codes of mpies and the errors that are a user's to mend.

Each error's message is one line: where, what was expected, what was found, how to mend it.
"""

import importlib
from typing import Any

# Exit codes of the process; 75 tells a scheduler to requeue the job.
FINISHED, FAILED, USER_ERROR, REQUEUE = 0, 1, 2, 75
# From ranks to their supervisor alone, which ends with FAILED: another start would fail as well.
FAILED_FOR_GOOD = 3


class UserError(ValueError):
    """Something that the user can mend; the message is one line that says how."""


class ConfigError(UserError):
    """A mistake in a configuration or on the command line."""


class EnvironmentProblem(UserError):
    """The user's environment cannot be used; the message is one line that says why and how to mend it."""


class SolverProblem(UserError):
    """A solver of the user's or of another package cannot go on; one line says why and how to mend it."""


class RunError(UserError):
    """A file of a run is absent, damaged or of another kind than expected."""


class Unreadable(RunError):
    """A file of a run is there, but the system refuses to read it."""


class NewerFormat(RunError):
    """The file was written by a newer mpies."""


class RunLocked(UserError):
    """Another live job writes this run directory, or has taken it over."""


class NotEnoughSharedMemory(UserError):
    """The shared memory of a node cannot hold what was asked for."""


class TrainingFailed(UserError):
    """A run has ended, and neither is it finished nor was it stopped."""


def unreadable(path: object, error: OSError) -> Unreadable:
    """What to raise where the system refuses to read a file that is there."""
    return Unreadable(f"{path}: cannot be read ({error.strerror}); nothing was written; mend that, and try again")


def import_extra(extra: str, needs: str, *modules: str) -> Any:
    """The last of these modules, which come with an extra of mpies.

    needs: what needs which package, for the message.  Raises ConfigError where one of them is not installed.
    """
    try:
        return [importlib.import_module(name) for name in modules][-1]
    except ImportError:
        raise ConfigError(f'{needs}: pip install "mpies[{extra}]"') from None


def explain_os_error(error: OSError) -> str:
    """What the system refused, in one line.  error: about a file."""
    return f"{error.filename}: cannot be read or written ({error.strerror}); give another path"


def error_of_kind(name: str, message: str) -> UserError:
    """The error that another process has met.  name: of its class; one that is not known here is a TrainingFailed."""
    waiting: list[type[UserError]] = [UserError]
    for kind in waiting:
        if kind.__name__ == name:
            return kind(message)
        waiting += kind.__subclasses__()
    return TrainingFailed(message)
