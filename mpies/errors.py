"""The exit codes of mpies and the errors that are a user's to mend.

Each error's message is one line: where, what was expected, what was found, how to mend it.
"""

from collections.abc import Sequence

from mpies.envs.base import EnvironmentProblem
from mpies.solvers.adapters.problem import SolverProblem

# Exit codes of the process; 75 tells a scheduler to requeue the job.
FINISHED, FAILED, USER_ERROR, REQUEUE = 0, 1, 2, 75
# From ranks to their supervisor alone, which ends with FAILED: another start would fail as well.
FAILED_FOR_GOOD = 3


class UserError(ValueError):
    """Something that the user can mend; the message is one line that says how."""


class ConfigError(UserError):
    """A mistake in a configuration or on the command line."""


class RunError(UserError):
    """A file of a run is absent, damaged or of another kind than expected."""


class NoTrajectory(RunError):
    """The mean of the run has no path that could be drawn."""


class NewerFormat(RunError):
    """The file was written by a newer mpies."""


class RunLocked(UserError):
    """Another live job writes this run directory, or has taken it over."""


class NotEnoughSharedMemory(UserError):
    """The shared memory of a node cannot hold what was asked for."""


class TrainingFailed(UserError):
    """A run has ended, and neither is it finished nor was it stopped."""


def explain_os_error(error: OSError) -> str:
    """What the system refused, in one line.  error: about a file."""
    return f"{error.filename}: cannot be read or written ({error.strerror}); give another path"


def escape(text: str) -> str:
    """The text with escapes such as \\x1b for control characters, which a user's file may hold; lines are kept."""
    return "".join(letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in text)


def printable(text: str) -> str:
    """The text on one line, with escapes for control characters."""
    return escape(" ".join(text.split()))


def counted(number: int, noun: str) -> str:
    """The number and the noun, such as `1 rank` or `12 ranks`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def name_few(names: Sequence[str]) -> str:
    """The first three names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# What the command line prints as one line and ends with USER_ERROR.
USER_ERRORS: tuple[type[Exception], ...] = (UserError, EnvironmentProblem, SolverProblem)

_KINDS = (
    *(UserError, ConfigError, RunError, NewerFormat, RunLocked, NotEnoughSharedMemory),
    *(EnvironmentProblem, SolverProblem),
)


def error_of_kind(name: str, message: str) -> Exception:
    """The error that another process has met.  name: of its class; one that is not known here is a TrainingFailed."""
    kinds: dict[str, type[Exception]] = {kind.__name__: kind for kind in _KINDS}
    return kinds.get(name, TrainingFailed)(message)
