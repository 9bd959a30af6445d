"""One-line messages about environments that cannot be used."""

import contextlib
import difflib
import importlib.util
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mpies.core.errors import EnvironmentProblem
from mpies.core.text import describe_error, message_of

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
    text = message_of(error)
    extra = next((extra for package, extra in _EXTRAS.items() if package.lower() in text.lower()), None)
    cure = f'pip install "mpies[{extra}]"' if extra else "install the package it names"
    return EnvironmentProblem(f"{environment_id} needs a package that is not installed ({text}); {cure}")


def is_about_arguments(error: BaseException) -> bool:
    """Whether an exception of a constructor says that it does not take what it was given."""
    return isinstance(error, TypeError) and bool(_ARGUMENTS.search(message_of(error)))


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
        if is_about_arguments(error):
            text = message_of(error)
            cure = hint if "missing" in text else ""
            raise EnvironmentProblem(f"{environment_id} does not accept these kwargs: {text}{cure}") from error
        raise EnvironmentProblem(f"{environment_id} cannot be built: {describe_error(error)}") from error
