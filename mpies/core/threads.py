"""Threads of linear algebra, and a name.  Imports nothing heavy: NumPy reads these variables when it is imported."""

import os
from collections.abc import Mapping, MutableMapping

TRACKING = "mpies-tracking-wandb"  # name of the thread that hands a run to Weights & Biases

# Read by OpenBLAS, MKL, BLIS and libraries that use OpenMP.
VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "BLIS_NUM_THREADS")


def count_threads(environment: Mapping[str, str] = os.environ) -> int:
    """Threads of linear algebra in this process: as the variables say, else one for each processor that it may use."""
    counts = [int(environment[name]) for name in VARIABLES if environment.get(name, "").isdecimal()]
    return min(counts, default=len(os.sched_getaffinity(0)))


def warn_of_threads(ranks: int) -> None:
    """Log a warning where the ranks of a node start more threads than it has processors.  ranks: on this node.

    The command line limits threads before it imports NumPy.  In a script under mpirun or srun, importing mpies changes
    nothing in the process.
    """
    threads, processors = count_threads(), os.cpu_count() or 1
    if ranks > 1 and threads > 1 and ranks * threads > processors:
        import logging

        logging.getLogger(__name__).warning(
            "each of the %d ranks of this node starts %d threads for linear algebra, but it has %d processors; set "
            "OMP_NUM_THREADS=1 before mpirun or srun",
            *(ranks, threads, processors),
        )


def limit_threads(environment: MutableMapping[str, str] = os.environ) -> None:
    """Limit linear algebra to one thread per process, since each rank has one core.

    A variable that is already set stays as it is; the others follow OMP_NUM_THREADS where that is set.
    Has an effect only before NumPy is imported.
    """
    count = environment.get("OMP_NUM_THREADS", "1")
    for name in VARIABLES:
        environment.setdefault(name, count)
