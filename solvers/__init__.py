"""The mathematics of mpies: solvers, noise table, fitness shaping.  No MPI and no environment."""

from solvers.ars import ARS
from solvers.cr_fm_nes import CRFMNES
from solvers.deep_ga import DeepGA
from solvers.from_pycma import CMAES
from solvers.novelty_es import NoveltyES
from solvers.openai_es import OpenAIES
from solvers.pepg import PEPG
from solvers.pgpe import PGPE
from solvers.registry import find_solver
from solvers.sep_cma import SepCMA
from solvers.snes import SNES

# The registry: what may stand under `solver.kind`, besides nevergrad:NAME and path/to/file.py:Class.
SOLVERS = {
    solver.Options.model_fields["kind"].default: solver
    for solver in (OpenAIES, PEPG, PGPE, ARS, SNES, SepCMA, CRFMNES, CMAES, DeepGA, NoveltyES)
}

__all__ = ["SOLVERS", "find_solver"]
