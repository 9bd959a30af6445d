"""The mathematics of mpies: solvers, noise table, fitness shaping.  No MPI and no environment."""

from solvers.openai_es import OpenAIES

# The registry: what may stand under `solver.kind`.
SOLVERS = {"openai_es": OpenAIES}
