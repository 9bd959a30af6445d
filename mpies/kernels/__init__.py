"""The inner loop of rollouts as compiled code.

kernels.c does the arithmetic, with that of networks in perceptron.h, recurrent.h and convolution.h.  compiled.pyx and
networks.pxi make it classes that take NumPy arrays.  They are built when mpies is installed, which needs a C compiler
and Python's headers.  Without them `compiled` is None, and policies and players use NumPy, which gives the same bits
but takes longer.
"""

__all__ = ["compiled"]

try:
    import mpies.kernels.compiled as compiled
except ImportError:  # not built, or built for another system
    compiled = None  # type: ignore[assignment]
