"""Linear algebra gets one thread per process, unless the user says otherwise."""

import pytest

from mpies.core import threads
from mpies.core.threads import count_threads, limit_threads, warn_of_threads

OPENBLAS, MKL, OMP, BLIS = "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "BLIS_NUM_THREADS"


@pytest.mark.parametrize(("given", "rest"), [({}, "1"), ({OMP: "4"}, "4"), ({MKL: "2", "HOME": "/"}, "1")])
def test_what_is_set_stays_and_the_rest_follows_omp_or_is_one(given, rest):
    variables = dict(given)
    limit_threads(variables)
    assert variables == dict.fromkeys((OPENBLAS, MKL, OMP, BLIS), rest) | given


@pytest.mark.parametrize(
    ("variables", "count"), [({}, 3), ({OMP: "2"}, 2), ({OPENBLAS: "1", OMP: "4"}, 1), ({OMP: "dynamic"}, 3)]
)
def test_threads_are_those_of_the_variables_or_one_for_each_processor(variables, count, monkeypatch):
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda process: {0, 2, 5})
    assert count_threads(variables) == count


@pytest.mark.parametrize(
    ("ranks", "count", "is_warned_of"), [(1, 8, False), (2, 4, False), (2, 8, True), (8, 2, True), (16, 1, False)]
)
def test_more_threads_than_processors_are_warned_of(ranks, count, is_warned_of, monkeypatch, caplog):
    monkeypatch.setattr(threads.os, "cpu_count", lambda: 8)
    monkeypatch.setenv(OPENBLAS, str(count))
    for name in (MKL, OMP, BLIS):
        monkeypatch.delenv(name, raising=False)
    warn_of_threads(ranks)
    assert ("set OMP_NUM_THREADS=1 before mpirun or srun" in caplog.text) is is_warned_of
