"""Linear algebra gets one thread per process, unless the user says otherwise."""

import pytest

from mpies.core.threads import limit_threads

OPENBLAS, MKL, OMP, BLIS = "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "BLIS_NUM_THREADS"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {OPENBLAS: "1", MKL: "1", OMP: "1", BLIS: "1"}),
        ({OMP: "4"}, {OPENBLAS: "4", MKL: "4", OMP: "4", BLIS: "4"}),
        ({MKL: "2", "HOME": "/"}, {OPENBLAS: "1", MKL: "2", OMP: "1", BLIS: "1", "HOME": "/"}),
    ],
)
def test_what_is_set_stays_and_the_rest_follows_omp_or_is_one(before, after):
    limit_threads(before)
    assert before == after
