"""Threads of linear algebra, and a name.  Imports nothing heavy: NumPy reads these variables when it is imported."""

import os
from collections.abc import MutableMapping

TRACKING = "mpies-tracking-wandb"  # name of the thread that hands a run to Weights & Biases

# Read by OpenBLAS, MKL, BLIS and libraries that use OpenMP.
VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "BLIS_NUM_THREADS")


def limit_threads(environment: MutableMapping[str, str] = os.environ) -> None:
    """Limit linear algebra to one thread per process, since each rank has one core.

    A variable that is already set stays as it is; the others follow OMP_NUM_THREADS where that is set.
    Has an effect only before NumPy is imported.
    """
    count = environment.get("OMP_NUM_THREADS", "1")
    for name in VARIABLES:
        environment.setdefault(name, count)
