"""The user's own environment or function, named path/to/file.py:name or module:callable."""

import importlib
import importlib.util
import sys
from pathlib import Path

from envs.base import EnvironmentProblem
from envs.gymnasium_world import cannot_build, one_line


def is_own(environment_id):
    """Whether an id names a callable of the user's; gymnasium's own module:ID-v0 ends in no identifier."""
    place, colon, name = environment_id.rpartition(":")
    return bool(colon and place and name.isidentifier() and (place.endswith(".py") or _is_module(place)))


def _is_module(place):
    return all(part.isidentifier() for part in place.split("."))


def find(environment_id):
    """The callable of that name.  Raises EnvironmentProblem where there is none."""
    place, _, name = environment_id.rpartition(":")
    module = _load(environment_id, place)
    if not hasattr(module, name):
        has = [known for known, value in vars(module).items() if callable(value) and not known.startswith("_")]
        raise EnvironmentProblem(f"{environment_id}: {place} has no {name}; it has {', '.join(has) or 'no callable'}")
    found = getattr(module, name)
    if not callable(found):
        raise EnvironmentProblem(f"{environment_id}: {name} must be a class or function, but is {found!r}")
    return found


def _load(environment_id, place):
    try:
        if not place.endswith(".py"):
            return importlib.import_module(place)
        path = Path(place).resolve()
        if not path.is_file():
            raise EnvironmentProblem(f"{environment_id}: there is no file {place} in {Path.cwd()}")
        key = f"_environment_{path}"
        if key not in sys.modules:
            spec = importlib.util.spec_from_file_location(key, path)
            sys.modules[key] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[key])
        return sys.modules[key]
    except EnvironmentProblem:
        raise
    except (Exception, SystemExit) as error:  # the user's file may do anything
        sys.modules.pop(f"_environment_{Path(place).resolve()}", None)
        raise EnvironmentProblem(
            f"{environment_id}: {place} cannot be imported ({type(error).__name__}: {one_line(error)})"
        ) from error


def make(environment_id, max_steps=None, **kwargs):
    """The environment that the user's class or factory makes, with a time limit where max_steps is given."""
    import gymnasium

    from envs.gym_world import Dressed

    factory = find(environment_id)
    with cannot_build(environment_id):
        environment = factory(**kwargs)
    needed = ("observation_space", "action_space", "reset", "step")
    missing = [name for name in needed if not hasattr(environment, name)]
    if missing:
        hint = "; a plain function needs environment.dimension" if isinstance(environment, (int, float)) else ""
        raise EnvironmentProblem(
            f"{environment_id} must make a gymnasium.Env, but what it returned, a {type(environment).__name__}, "
            f"has no {' and no '.join(missing)}{hint}"
        )
    if not isinstance(environment, gymnasium.Env):
        environment = Dressed(environment)
    return gymnasium.wrappers.TimeLimit(environment, max_steps) if max_steps else environment
