"""The error that a user's own solver causes, and what its message says of the user's code and its values."""

import traceback
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.core.text import describe_error

# What a user's code may raise and a message explains; KeyboardInterrupt is the user's wish to end.
RAISED = (Exception, SystemExit, GeneratorExit)


def explain_raised(method: str, error: BaseException, file: str) -> str:
    """What a method raised, on one line, and where.  file: absolute path of the user's file."""
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((frame for frame in reversed(frames) if frame.filename == file), frames[-1])
    text = describe_error(error)
    hint = "; change a copy of the results" if text.endswith(" is read-only") else ""
    return f"{method} raised {text} ({Path(frame.filename).name}, line {frame.lineno}){hint}"


def is_count(value: Any) -> bool:
    """Whether a value is a whole number that is not negative."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 0)


def count_bad(values: npt.NDArray[Any]) -> str:
    """How many of the numbers are NaN or infinite, as `3 of 8`."""
    return f"{int((~np.isfinite(values)).sum())} of {values.size}"


def kind_of(value: Any) -> str:
    """The letter of NumPy for the type of a value: b, i, u and f are numbers, O anything."""
    try:
        return np.asarray(value).dtype.kind
    except ValueError:  # a list of lists of different lengths
        return "O"
