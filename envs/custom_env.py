"""A custom environment or function, named path/to/file.py:name or module:callable."""

from __future__ import annotations

import contextlib
import copy
import inspect
import numbers
import os
import pickle
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpies.core.errors import EnvironmentProblem
from mpies.core.paths import absolute
from mpies.core.text import describe_error
from mpies.core.user_files import find_definition, importing_from
from mpies.envs.build_errors import explain_build_errors

if TYPE_CHECKING:
    import gymnasium

GIVEN = "MPIES_GIVEN"  # the variable that leads ranks to the file of `write_given`
NO_FILE = "given_in_python"  # the source of what is in no file
_given: dict[str, Callable[..., Any]] = {}  # what Python callers have handed over, by id


def give(environment: Any) -> str:
    """The id of a class, a function or an object that a Python caller hands over; `find` knows it from now on.

    environment: a class or function, which is called for each environment, or an environment, which is copied.  A
    module of PyTorch may stand for a policy in the same ways.  Where it is a class or function of a file, the id names
    that, so that others find it, too.  Lambdas and objects that differ get names that differ, so that no run goes on
    with another one's.
    """
    is_object = hasattr(environment, "named_parameters") and not isinstance(environment, type)  # PyTorch's are callable
    is_maker = callable(environment) and not is_object
    factory = environment if is_maker else lambda *_, **__: copy.deepcopy(environment)
    name, source = type(environment).__name__, NO_FILE
    if isinstance(environment, type) or inspect.isfunction(environment):
        name, source = environment.__qualname__, environment.__module__
    if source == "__main__":
        source = str(getattr(sys.modules[source], "__file__", None) or NO_FILE)
    is_named = name.isidentifier() and factory is environment
    if not name.isidentifier():  # within a function, or a lambda
        name, source = re.sub(r"\W+", "_", name).strip("_"), NO_FILE
    environment_id, number = f"{source}:{name}", 1
    while not is_named and environment_id in _given and not _are_alike(_given[environment_id], factory):
        number += 1  # the name is another one's, as are its runs
        environment_id = f"{source}:{name}_{number}"
    _given[environment_id] = factory
    return environment_id


def is_here(environment_id: str) -> bool:
    """Whether this process was handed over what has this id and is in no file."""
    return environment_id.startswith(f"{NO_FILE}:") and environment_id in _given


def _are_alike(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether two functions or objects would be the same ones in another process."""
    import cloudpickle

    try:
        return bool(cloudpickle.dumps(one) == cloudpickle.dumps(other))
    except Exception:  # the user's objects may raise anything
        return one is other


def write_given(ids: Sequence[str], file: Path) -> bool:
    """Write what was handed over under these ids for ranks that this process starts.  False where nothing was.

    Raises EnvironmentProblem where it cannot be sent to other processes.
    """
    found = {name: _given[name] for name in ids if name in _given}
    if not found:
        return False
    import cloudpickle

    try:
        content = cloudpickle.dumps(found)
    except Exception as error:  # the user's objects may raise anything
        name = ", ".join(name.rpartition(":")[2] for name in found)
        raise EnvironmentProblem(f"{name} cannot be sent to other processes ({describe_error(error)})") from None
    file.write_bytes(pickle.dumps(([place for place in sys.path if isinstance(place, str)], content)))
    return True


def is_custom(environment_id: str) -> bool:
    """Whether an id names a callable of the user's.

    gymnasium has ids of the form module:ID-v0 too, but what follows their colon is no Python identifier.
    """
    source, colon, name = environment_id.rpartition(":")
    is_module = all(part.isidentifier() for part in source.split("."))
    return bool(colon and name.isidentifier() and (is_module or source.endswith(".py")))


def refuse_half_a_name(environment_id: str) -> None:
    """Raise EnvironmentProblem where an id names a file and no callable in it, or leaves out the file's .py."""
    path, _, name = (environment_id + ":" * environment_id.endswith(".py")).rpartition(":")
    if path.endswith(".py") or ("/" in path and name.isidentifier()):
        wanted = f"{path.removesuffix('.py')}.py:{name if name.isidentifier() else 'NAME'}"
        raise EnvironmentProblem(f"{environment_id}: name a file, and the class or function in it, as in {wanted}")


def find(environment_id: str) -> Callable[..., Any]:
    """The callable of that name.  Raises EnvironmentProblem if there is none."""

    def find_fault(value: Any) -> str:
        if not callable(value):
            return f"must be a class or function, but is {value!r}"
        origin = str(value.__module__).partition(".")[0] if inspect.isroutine(value) or inspect.isclass(value) else ""
        is_python = origin in sys.stdlib_module_names  # as after `from os import system`
        return f"must be your own, but is of Python's module {origin}" if is_python else ""

    if GIVEN in os.environ and not _given:
        path, content = pickle.loads(Path(os.environ[GIVEN]).read_bytes())
        sys.path += [place for place in path if place not in sys.path]
        _given.update(pickle.loads(content))
    if environment_id in _given:
        return _given[environment_id]
    if environment_id.startswith(f"{NO_FILE}:"):
        raise EnvironmentProblem(
            f"{environment_id}: it was handed over in Python and is in no file; hand it over again, as in "
            "mpies.train(Room, out=...)"
        )
    found: Callable[..., Any] = find_definition(environment_id, EnvironmentProblem, find_fault)
    return found


def folder_of(environment_id: str) -> Path | None:
    """The folder of the file in an id, whose modules it may import; None for a module."""
    source = environment_id.rpartition(":")[0]
    return absolute(source).resolve().parent if source.endswith(".py") else None


def make(
    environment_id: str,
    factory: Callable[..., Any],
    folder: Path | None,
    max_steps: int | None = None,
    /,
    **kwargs: Any,
) -> gymnasium.Env[Any, Any]:
    """Build the user's environment.

    environment_id: for messages.
    factory: a class or function, which is called with `kwargs`.  What it returns may have gymnasium's or gym's
    interface.
    folder: of the file, whose modules the factory may import; None for none.
    max_steps: time limit; None for no limit.
    Raises EnvironmentProblem if it cannot be built or is no environment.
    """
    import gymnasium

    from mpies.envs.gym_env import GymAdapter

    needed = ("observation_space", "action_space", "reset", "step")
    hint = "" if inspect.isclass(factory) else "; a function of a vector needs environment.dimension"
    importing = importing_from(folder) if folder else contextlib.nullcontext()
    with explain_build_errors(environment_id, hint), importing:
        environment = factory(**kwargs)
        missing = [name for name in needed if not hasattr(environment, name)]
    if missing:
        hint = "; a plain function needs environment.dimension" if isinstance(environment, numbers.Real) else ""
        kind = type(environment).__name__
        raise EnvironmentProblem(
            f"{environment_id} must make a gymnasium.Env, but what it returned, "
            f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}, has no {' and no '.join(missing)}{hint}"
        )
    if not isinstance(environment, gymnasium.Env):
        if hasattr(environment, "num_envs"):  # of gymnasium, gym or Stable-Baselines3
            raise EnvironmentProblem(
                f"{environment_id} must make a single environment, but made {environment.num_envs} in one vectorised "
                "environment; mpies makes as many single ones as it needs"
            )
        with explain_build_errors(environment_id):
            environment = GymAdapter(environment)
    return gymnasium.wrappers.TimeLimit(environment, max_steps) if max_steps else environment
