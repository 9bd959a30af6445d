"""The registry of solvers: from `solver.kind` to the class."""

import difflib

from mpies.core.errors import SolverProblem
from mpies.core.paths import absolute
from mpies.core.user_files import find_definition
from mpies.solvers.adapters.from_nevergrad import nevergrad_solver
from mpies.solvers.adapters.from_pycma import CMAES
from mpies.solvers.ars import ARS
from mpies.solvers.base import AnySolver
from mpies.solvers.cr_fm_nes import CRFMNES
from mpies.solvers.custom_solver import find_fault, make_custom
from mpies.solvers.deep_ga import DeepGA
from mpies.solvers.novelty_es import NoveltyES
from mpies.solvers.openai_es import OpenAIES
from mpies.solvers.pepg import PEPG
from mpies.solvers.pgpe import PGPE
from mpies.solvers.sep_cma import SepCMA
from mpies.solvers.snes import SNES

# The values of `solver.kind`, besides nevergrad:NAME and path/to/file.py:Class.
SOLVERS: dict[str, type[AnySolver]] = {
    solver.Options.model_fields["kind"].default: solver
    for solver in (OpenAIES, PEPG, PGPE, ARS, SNES, SepCMA, CRFMNES, CMAES, DeepGA, NoveltyES)
}


def find_solver(kind: str) -> type[AnySolver]:
    """The Solver class of `kind`: a key of SOLVERS, nevergrad:NAME or path/to/file.py:Class.

    Its Options accept this kind only.  Raises ValueError, in one sentence, if there is no such solver.
    """
    if kind in SOLVERS:
        return SOLVERS[kind]
    path, colon, _ = kind.rpartition(":")
    if kind.startswith("nevergrad:"):
        return nevergrad_solver(kind)
    if colon and path.endswith(".py"):
        solver = find_definition(kind, SolverProblem, find_fault)
        return make_custom(solver, f"solver.kind {kind}", str(absolute(path).resolve()), kind)
    close = difflib.get_close_matches(kind, SOLVERS, n=1)
    hint = f"did you mean {close[0]}?" if close else "use openai_es, for instance"
    raise ValueError(
        f"must be one of {', '.join(SOLVERS)}, nevergrad:NAME or path/to/file.py:Class, but is {kind!r}; {hint}"
    )
