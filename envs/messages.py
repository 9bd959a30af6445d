"""One-line messages about environments that cannot be used."""

import contextlib
import difflib
import importlib.util
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from mpies.core.errors import EnvironmentProblem
from mpies.core.interrupt import is_interrupt

# What Python and compiled constructors say of arguments that they do not take.
_ARGUMENTS = re.compile("unexpected (keyword )?argument|positional argument|takes no (keyword )?arguments")

# Packages that gymnasium's environments import, and the extra of mpies that installs each.
_EXTRAS = {
    "Box2D": "box2d",
    "mujoco": "mujoco",
    "pygame": "classic-control",
    "imageio": "mujoco",
    "ale_py": "atari",
    "cv2": "atari",
}

LONGEST = 500  # characters of a message


def one_line(error: BaseException) -> str:
    """The message of an exception on one line: without control characters, and cut where it is very long."""
    try:
        words = " ".join(str(error).split())
    except BaseException as failure:  # __str__ is the user's code, too
        if is_interrupt(failure):
            raise
        return "(its message cannot be shown)"
    text = words[:LONGEST] + (" ..." if len(words) > LONGEST else "")
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def describe_error(error: BaseException) -> str:
    """What a user's code raised, on one line: its type and its message."""
    text = one_line(error)
    if isinstance(error, EnvironmentProblem):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def describe_value(value: Any) -> str:
    """A value as a message shows it, with its type or shape."""
    if value is None or isinstance(value, (bool, int, float, np.generic)):
        return str(value)
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    return f"a {type(value).__name__}"


def check_signature(function: Callable[..., Any], wanted: str, *args: Any, **kwargs: Any) -> None:
    """Raise EnvironmentProblem where a function of the user's does not take these arguments.  wanted: what it must."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # compiled code has none
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        raise EnvironmentProblem(f"{wanted}, but takes {signature}") from None


def suggest_ids(environment_id: str, known: Iterable[str]) -> str:
    """`; did you mean A or B?` for the ids among `known` that look like this one; empty if none does."""
    name = environment_id.partition("-v")[0]  # Pong-v5 is not like Ant-v5
    alike = [other for other in known if difflib.SequenceMatcher(None, name, other.partition("-v")[0]).ratio() >= 0.6]
    close = difflib.get_close_matches(environment_id, alike, n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def suggest_pybullet(environment_id: str) -> str:
    """`; it needs pybullet ...` for an id of pybullet's where that is not installed, else empty."""
    if "Bullet" not in environment_id or importlib.util.find_spec("pybullet"):
        return ""
    return (
        "; pybullet, which has such environments, is not installed: it has wheels for CPython 3.11, not for later ones"
    )


def missing_package(environment_id: str, error: Exception) -> EnvironmentProblem:
    """The EnvironmentProblem for an import that failed.  error: names the package."""
    text = one_line(error)
    extra = next((extra for package, extra in _EXTRAS.items() if package.lower() in text.lower()), None)
    cure = f'pip install "mpies[{extra}]"' if extra else "install the package it names"
    return EnvironmentProblem(f"{environment_id} needs a package that is not installed ({text}); {cure}")


def is_about_arguments(error: BaseException) -> bool:
    """Whether an exception of a constructor says that it does not take what it was given."""
    return isinstance(error, TypeError) and bool(_ARGUMENTS.search(one_line(error)))


@contextlib.contextmanager
def explain_build_errors(environment_id: str, hint: str = "") -> Iterator[None]:
    """Raise EnvironmentProblem for whatever the code in the `with` block, an environment's constructor, raises.

    hint: ends the message where an argument is missing.
    """
    try:
        yield
    except EnvironmentProblem:
        raise
    except ModuleNotFoundError as error:
        raise missing_package(environment_id, error) from error
    except BaseException as error:  # a constructor may raise anything
        if is_interrupt(error):
            raise
        if is_about_arguments(error):
            text = one_line(error)
            cure = hint if "missing" in text else ""
            raise EnvironmentProblem(f"{environment_id} does not accept these kwargs: {text}{cure}") from error
        raise EnvironmentProblem(f"{environment_id} cannot be built: {describe_error(error)}") from error
