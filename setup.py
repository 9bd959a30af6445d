"""How to build mpies/kernels, which setup.cfg cannot express.  If the build fails, NumPy computes the same bits."""

from importlib.util import find_spec

from setuptools import Extension, setup

KERNELS = Extension(
    "mpies.kernels.compiled",
    ["mpies/kernels/compiled.pyx", "mpies/kernels/kernels.c"],
    include_dirs=["mpies/kernels"],
    depends=["mpies/kernels/kernels.h", "mpies/kernels/perceptron.h"],
    # Cython repeats the structures of kernels.h: a difference must stop the build.
    extra_compile_args=["-O3", "-ffp-contract=off", "-g0", "-Werror=incompatible-pointer-types"],
    optional=True,
)
# The C code that Cython writes stays out of the source folder.
OPTIONS = {"build_ext": {"cython_c_in_temp": True}} if find_spec("Cython") else {}
setup(ext_modules=[KERNELS], options=OPTIONS)
