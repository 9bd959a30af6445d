"""What setup.cfg cannot say: what to compile.  Without a C compiler NumPy computes the same bits, more slowly."""

from setuptools import Extension, setup

KERNELS = Extension(
    "mpies.kernels._kernels",
    ["mpies/kernels/_kernels.c"],
    depends=["mpies/kernels/_perceptron.h"],
    extra_compile_args=["-O3", "-ffp-contract=off"],
    optional=True,
)
setup(ext_modules=[KERNELS])
