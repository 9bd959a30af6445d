"""From `solver.kind` to the class: the registry's own, Nevergrad's, or one from a user's file."""

import difflib
import importlib.util
import sys
from pathlib import Path


def find_solver(kind):
    """The Solver class of `kind`: a name in the registry, nevergrad:NAME or path/to/file.py:Class.

    Its Options have `kind` as their tag.  Raises ValueError with what was expected.
    """
    from solvers import SOLVERS

    if kind in SOLVERS:
        return SOLVERS[kind]
    place, colon, name = kind.rpartition(":")
    if kind.startswith("nevergrad:"):
        from solvers.from_nevergrad import nevergrad_solver

        return nevergrad_solver(kind)
    if colon and place.endswith(".py"):
        return _own_solver(kind, Path(place), name)
    close = difflib.get_close_matches(kind, SOLVERS, n=1)
    hint = f"did you mean {close[0]}?" if close else "use openai_es, for instance"
    raise ValueError(
        f"must be one of {', '.join(SOLVERS)}, nevergrad:NAME or path/to/file.py:Class, but is {kind!r}; {hint}"
    )


def _own_solver(kind, path, name):
    from solvers.base import Solver
    from solvers.options import Population, tagged

    if not path.is_file():
        raise ValueError(f"must name a file that exists, but there is no {path} in {Path.cwd()}")
    module = sys.modules.get(f"_solver_{path.stem}")
    if module is None or module.__file__ != str(path.resolve()):
        spec = importlib.util.spec_from_file_location(f"_solver_{path.stem}", path.resolve())
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[spec.name]
            raise ValueError(f"must name a file that can be loaded, but {path} raises {error!r}") from error
    solver = getattr(module, name, None)
    if not (isinstance(solver, type) and issubclass(solver, Solver)):
        raise ValueError(f"must name a subclass of solvers.base.Solver, but {name} in {path} is {solver!r}")
    if not (isinstance(getattr(solver, "Options", None), type) and issubclass(solver.Options, Population)):
        raise ValueError(f"must name a solver with Options, a subclass of solvers.options.Population: see {name}")
    missing = sorted(getattr(solver, "__abstractmethods__", ()))
    if missing:
        raise ValueError(f"must name a complete solver, but {name} in {path} lacks {', '.join(missing)}")
    return type(name, (solver,), {"Options": tagged(solver.Options, kind)})
