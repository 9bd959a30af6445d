"""How to build mpies/kernels, which setup.cfg cannot express.  If the build fails, NumPy computes the same bits.

Set MPIES_STABLE_ABI=1 to build one wheel for CPython 3.11 and all later ones.  A call into the kernels then takes half
a microsecond more; the loops inside them are the same.
"""

import os
from glob import glob
from importlib.util import find_spec
from typing import Any

from setuptools import Extension, setup

STABLE_ABI = os.environ.get("MPIES_STABLE_ABI") == "1"
KERNELS = Extension(
    "mpies.kernels.compiled",
    ["mpies/kernels/compiled.pyx", "mpies/kernels/kernels.c"],
    include_dirs=["mpies/kernels"],
    depends=sorted(glob("mpies/kernels/*.h") + glob("mpies/kernels/*.pxi")),
    define_macros=[("Py_LIMITED_API", "0x030B0000")] if STABLE_ABI else [],
    py_limited_api=STABLE_ABI,
    # Cython repeats the structures of kernels.h: a difference must stop the build.
    extra_compile_args=["-O3", "-ffp-contract=off", "-g0", "-Werror=incompatible-pointer-types"],
    optional=True,
)
OPTIONS: dict[str, Any] = {}
if find_spec("Cython"):
    OPTIONS["build_ext"] = {"cython_c_in_temp": True}  # the C code that Cython writes stays out of the source folder
if STABLE_ABI:
    OPTIONS["bdist_wheel"] = {"py_limited_api": "cp311"}
setup(ext_modules=[KERNELS], options=OPTIONS)
