"""The registry of solvers: from `solver.kind` to the class."""

import difflib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from mpies.core.user_files import load_file
from mpies.solvers.adapters.from_nevergrad import nevergrad_solver
from mpies.solvers.adapters.from_pycma import CMAES
from mpies.solvers.ars import ARS
from mpies.solvers.base import Solver
from mpies.solvers.cr_fm_nes import CRFMNES
from mpies.solvers.custom_solver import RAISED, find_missing, make_custom
from mpies.solvers.deep_ga import DeepGA
from mpies.solvers.novelty_es import NoveltyES
from mpies.solvers.openai_es import OpenAIES
from mpies.solvers.pepg import PEPG
from mpies.solvers.pgpe import PGPE
from mpies.solvers.sep_cma import SepCMA
from mpies.solvers.snes import SNES

SolverClass = type[Solver[Any, Any]]

# The values of `solver.kind`, besides nevergrad:NAME and path/to/file.py:Class.
SOLVERS: dict[str, SolverClass] = {
    solver.Options.model_fields["kind"].default: solver
    for solver in (OpenAIES, PEPG, PGPE, ARS, SNES, SepCMA, CRFMNES, CMAES, DeepGA, NoveltyES)
}


def find_solver(kind: str, folder: Path | None = None) -> SolverClass:
    """The Solver class of `kind`: a key of SOLVERS, nevergrad:NAME or path/to/file.py:Class.

    folder: where a relative path begins; None for the working directory.
    Its Options accept this kind only.  Raises ValueError, in one sentence, if there is no such solver.
    """
    if kind in SOLVERS:
        return SOLVERS[kind]
    path, colon, name = kind.rpartition(":")
    if kind.startswith("nevergrad:"):
        return nevergrad_solver(kind)
    if colon and path.endswith(".py"):
        return _load_solver(kind, Path(path), name, folder or Path.cwd())
    close = difflib.get_close_matches(kind, SOLVERS, n=1)
    hint = f"did you mean {close[0]}?" if close else "use openai_es, for instance"
    raise ValueError(
        f"must be one of {', '.join(SOLVERS)}, nevergrad:NAME or path/to/file.py:Class, but is {kind!r}; {hint}"
    )


def _load_solver(kind: str, path: Path, name: str, folder: Path) -> SolverClass:
    """The solver class `name` of a user's file.  path: begins in `folder` if it is relative."""
    location = (folder / path).resolve()
    if not location.is_file():
        raise ValueError(f"must name a file that exists, but there is no {path} in {folder}")
    module = _import_file(path, location)
    try:
        solver = _find_class(module, path, name)
    except ValueError:
        sys.modules.pop(module.__name__, None)  # it is read again once the user has mended it
        raise
    return make_custom(solver, f"solver.kind {kind}", str(location), kind)


def _find_class(module: ModuleType, path: Path, name: str) -> SolverClass:
    """The complete solver class `name` of a user's module.  path: of its file, for messages."""
    if not hasattr(module, name):
        has = [
            known for known, value in vars(module).items() if _is_solver(value) and value.__module__ == module.__name__
        ]
        raise ValueError(
            f"must name a subclass of mpies.solvers.base.Solver, but {path} has no {name}; "
            f"it has {', '.join(has) or 'no solver'}"
        )
    solver = getattr(module, name)
    if not _is_solver(solver):
        raise ValueError(f"must name a subclass of mpies.solvers.base.Solver, but {name} in {path} is {solver!r}")
    if missing := find_missing(solver):
        raise ValueError(f"must name a complete solver, but {name} in {path} lacks {missing}")
    return cast(SolverClass, solver)


def _is_solver(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Solver)


def _import_file(path: Path, location: Path) -> ModuleType:
    """The module of a file, imported once.  path: for messages.  location: its absolute path."""
    try:
        return load_file(location, f"_solver_{path.stem}")
    except RAISED as error:
        message = f"raises SyntaxError: {error}" if isinstance(error, SyntaxError) else f"raises {error!r}"
        raise ValueError(f"must name a file that can be loaded, but {path} {message}") from error
