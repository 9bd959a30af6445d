"""The user's own environment or function, named path/to/file.py:name or module:callable."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mpies.envs.base import EnvironmentProblem
from mpies.envs.interrupt import is_interrupt
from mpies.envs.messages import describe_error, explain_build_errors

if TYPE_CHECKING:
    import gymnasium


def is_own(environment_id: str) -> bool:
    """Whether an id names a callable of the user's.

    gymnasium has ids of the form module:ID-v0 too, but what follows their colon is no Python identifier.
    """
    source, colon, name = environment_id.rpartition(":")
    return bool(colon and source and name.isidentifier() and (source.endswith(".py") or _is_module_name(source)))


def _is_module_name(source: str) -> bool:
    return all(part.isidentifier() for part in source.split("."))


def find(environment_id: str, folder: Path | None = None) -> Callable[..., Any]:
    """The callable of that name.  Raises EnvironmentProblem if there is none.

    folder: where a relative path begins; None for the working directory.
    """
    source, _, name = environment_id.rpartition(":")
    module = _load(environment_id, source, folder or Path.cwd())
    if not hasattr(module, name):
        has = [known for known, value in vars(module).items() if callable(value) and not known.startswith("_")]
        raise EnvironmentProblem(f"{environment_id}: {source} has no {name}; it has {', '.join(has) or 'no callable'}")
    value = getattr(module, name)
    if not callable(value):
        raise EnvironmentProblem(f"{environment_id}: {name} must be a class or function, but is {value!r}")
    return value


def _load(environment_id: str, source: str, folder: Path) -> ModuleType:
    """The module of a file or of a module's name, imported once.  Raises EnvironmentProblem if that fails."""
    path = (folder / source).resolve()
    key = f"_environment_{path}"
    try:
        if not source.endswith(".py"):
            return importlib.import_module(source)
        if not path.is_file():
            raise EnvironmentProblem(f"{environment_id}: there is no file {source} in {folder}")
        if key not in sys.modules:
            spec = importlib.util.spec_from_file_location(key, path)
            assert spec is not None and spec.loader is not None  # Python has a loader for every .py file
            sys.modules[key] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[key])
        return sys.modules[key]
    except EnvironmentProblem:
        raise
    except BaseException as error:  # the user's file may do anything
        sys.modules.pop(key, None)
        if is_interrupt(error):
            raise
        raise EnvironmentProblem(f"{environment_id}: {source} cannot be imported ({describe_error(error)})") from error


def make(
    environment_id: str, factory: Callable[..., Any], max_steps: int | None = None, /, **kwargs: Any
) -> gymnasium.Env[Any, Any]:
    """Build the user's environment.

    environment_id: for messages.
    factory: a class or function, which is called with `kwargs`.  What it returns may have gymnasium's or gym's
    interface.
    max_steps: time limit; None for no limit.
    Raises EnvironmentProblem if it cannot be built or is no environment.
    """
    import gymnasium

    from mpies.envs.gym_env import GymAdapter

    needed = ("observation_space", "action_space", "reset", "step")
    with explain_build_errors(environment_id):
        environment = factory(**kwargs)
        missing = [name for name in needed if not hasattr(environment, name)]
    if missing:
        hint = "; a plain function needs environment.dimension" if isinstance(environment, (int, float)) else ""
        raise EnvironmentProblem(
            f"{environment_id} must make a gymnasium.Env, but what it returned, a {type(environment).__name__}, "
            f"has no {' and no '.join(missing)}{hint}"
        )
    if not isinstance(environment, gymnasium.Env):
        with explain_build_errors(environment_id):
            environment = GymAdapter(environment)
    return gymnasium.wrappers.TimeLimit(environment, max_steps) if max_steps else environment
