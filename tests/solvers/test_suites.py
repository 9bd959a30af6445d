"""A short version of benchmarks/solver_suites.py: problems that no one here wrote."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("cocoex", reason="coco-experiment is not installed")

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "solver_suites.py"


@pytest.fixture(scope="module")
def suites():
    spec = importlib.util.spec_from_file_location("solver_suites", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Evaluations to f1, f2 and f10 in 5 dimensions that would be far too many; None where it must fail.
LIMITS = {
    "cma_es": {1: 1200, 2: 3000, 10: 3000},
    "cr_fm_nes": {1: 2000, 2: 6000, 10: None},  # in 5 dimensions its path has no say: c1 = 0
    "snes": {1: 3000, 2: 8000, 10: None},
    "sep_cma": {1: 2000, 2: 5000, 10: None},
}


@pytest.mark.parametrize("solver", LIMITS)
def test_targets_are_hit_where_the_model_can_and_missed_where_it_cannot(solver, suites):
    plan, rows = {"bbob": {"instances": {5: 1}, "functions": (1, 2, 10), "budget": 2500}}, []
    suites.run_suites([solver], plan, rows, lambda seconds: None)
    found = {row["function"]: row["evaluations"] for row in rows}
    for function, limit in LIMITS[solver].items():
        assert found[function] is None if limit is None else found[function] and found[function] <= limit


def test_the_table_has_means_of_the_hits_and_ratios_of_what_both_hit(suites):
    rows = [
        {"suite": "bbob", "dimension": 5, "function": 1, "solver": solver, "instance": k, "evaluations": e}
        for solver, found in (("ours", [100, 300]), ("theirs", [100, 100]), ("third", [50, None]))
        for k, e in enumerate(found)
    ]
    table = suites.tabulate(rows)
    assert table[("bbob", 5, 1)] == {"ours": (2, 2, 200.0), "theirs": (2, 2, 100.0), "third": (1, 2, 50.0)}
    assert suites.ratios(table, "ours", "theirs") == {("bbob", 5, 1): 2.0}
    assert suites.ratios(table, "ours", "third") == {}


def test_index_only_solvers_send_a_fraction_of_what_whole_vectors_are(suites):
    sent = suites.measure_bytes(dimension=2804, members=256, generations=1)
    for kind, parts in sent.items():
        if kind != "cma_es":
            assert sum(parts.values()) < 4 * 256 * (2804 + 5) / 20, kind
