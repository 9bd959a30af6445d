"""A custom environment or function, named path/to/file.py:name or module:callable."""

from __future__ import annotations

import contextlib
import inspect
import numbers
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpies.core.errors import EnvironmentProblem
from mpies.core.paths import absolute
from mpies.core.user_files import find_definition, importing_from
from mpies.envs.build_errors import explain_build_errors

if TYPE_CHECKING:
    import gymnasium


def is_custom(environment_id: str) -> bool:
    """Whether an id names a callable of the user's.

    gymnasium has ids of the form module:ID-v0 too, but what follows their colon is no Python identifier.
    """
    source, colon, name = environment_id.rpartition(":")
    is_module = all(part.isidentifier() for part in source.split("."))
    return bool(colon and name.isidentifier() and (is_module or source.endswith(".py")))


def find(environment_id: str) -> Callable[..., Any]:
    """The callable of that name.  Raises EnvironmentProblem if there is none."""

    def find_fault(value: Any) -> str:
        if not callable(value):
            return f"must be a class or function, but is {value!r}"
        origin = str(value.__module__).partition(".")[0] if inspect.isroutine(value) or inspect.isclass(value) else ""
        is_python = origin in sys.stdlib_module_names  # as after `from os import system`
        return f"must be your own, but is of Python's module {origin}" if is_python else ""

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
