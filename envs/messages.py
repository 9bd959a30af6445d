"""One-line messages about environments that cannot be used."""

import contextlib
import difflib
from collections.abc import Iterable, Iterator

from mpies.envs.base import EnvironmentProblem

# Packages that gymnasium's environments import, and the extra of mpies that installs each.
_EXTRAS = {
    "Box2D": "box2d",
    "mujoco": "mujoco",
    "pygame": "classic-control",
    "imageio": "mujoco",
    "ale_py": "atari",
    "cv2": "atari",
}


def one_line(error: BaseException) -> str:
    """The message of an exception, its line breaks replaced by spaces."""
    return " ".join(str(error).split())


def suggest_ids(environment_id: str, known: Iterable[str]) -> str:
    """`; did you mean A or B?` for the ids among `known` that look like this one; empty if none does."""
    close = difflib.get_close_matches(environment_id, list(known), n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def missing_package(environment_id: str, error: Exception) -> EnvironmentProblem:
    """The EnvironmentProblem for an import that failed.  error: names the package."""
    text = one_line(error)
    extra = next((extra for package, extra in _EXTRAS.items() if package.lower() in text.lower()), None)
    cure = f'pip install "mpies[{extra}]"' if extra else "install the package it names"
    return EnvironmentProblem(f"{environment_id} needs a package that is not installed ({text}); {cure}")


@contextlib.contextmanager
def explain_build_errors(environment_id: str) -> Iterator[None]:
    """Raise EnvironmentProblem for whatever the code in the `with` block, an environment's constructor, raises."""
    try:
        yield
    except EnvironmentProblem:
        raise
    except ModuleNotFoundError as error:
        raise missing_package(environment_id, error) from error
    except TypeError as error:
        raise EnvironmentProblem(f"{environment_id} does not take these kwargs: {one_line(error)}") from error
    except Exception as error:  # a constructor may raise anything
        raise EnvironmentProblem(
            f"{environment_id} cannot be built: {type(error).__name__}: {one_line(error)}"
        ) from error
