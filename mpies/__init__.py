"""mpies: policies trained by evolution strategies on CPU clusters."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

# One BLAS thread per rank, unless the user says otherwise; must stand before NumPy is imported.
for _name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "BLIS_NUM_THREADS"):
    os.environ.setdefault(_name, os.environ.get("OMP_NUM_THREADS", "1"))

_HOME = Path(__file__).resolve().parent.parent

for _name in ("solvers", "envs"):
    _found = find_spec(_name)
    _origin = Path(_found.origin).resolve().parent.parent if _found and _found.origin else None
    if _origin != _HOME:
        sys.stderr.write(
            f"mpies: another package named {_name!r} hides the one of mpies: found in {_origin or 'a folder'}, "
            f"expected in {_HOME}; start mpies from another folder or set PYTHONSAFEPATH=1\n"
        )
        raise SystemExit(2)

__version__ = "0.1.0"
