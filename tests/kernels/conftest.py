"""What tests of the compiled code share: when they are skipped, NumPy in its place, and vectors of any width."""

import contextlib

import numpy as np
import pytest

from mpies import kernels

compiled = pytest.mark.skipif(not kernels.compiled, reason="the kernels could not be built when mpies was installed")
EXTREMES = np.array([0, -0.0, 1e-45, 1e30, -1e30, np.inf, -np.inf, np.nan], np.float32)


@contextlib.contextmanager
def in_numpy():
    """What is made meanwhile computes with NumPy, as where the compiled code is absent."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "compiled", None)
        yield


@pytest.fixture(params=[4, 8, 16])
def vectors(request):
    """The widest vectors that are used, for networks of any size."""
    before = kernels.compiled.use_vectors(request.param, 0)
    yield request.param
    assert kernels.compiled.use_vectors(*before) == (request.param, 0)
