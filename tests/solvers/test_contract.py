"""What every solver must do, over the registry."""

import dataclasses

import numpy as np
import pytest

from mpies.solvers import SOLVERS, find_solver
from mpies.solvers.base import Results
from mpies.solvers.loop import SolverLoop, noise_table

DIMENSION = 24
TABLE = noise_table(1 << 16)
OPTIONS = {
    "openai_es": {"population": 20, "sigma": 0.1, "weight_decay": 0.0, "optimizer": {"learning_rate": 0.05}},
    "pepg": {"population": 20, "learning_rate": 0.05, "weight_decay": 0.01},
    "pepg elites": {"population": 20, "elite_ratio": 0.2, "average_baseline": False, "rank_fitness": False},
    "pgpe": {"population": 20, "interactions": 50},
    "ars": {"population": 20, "top": 7, "sigma": 0.1, "alive_bonus": 0.5},
    "snes": {"population": 20},
    "sep_cma": {},
    "cr_fm_nes": {},
    "cma_es": {"weight_decay": 0.01},
    "cma_es diagonal": {"covariance": "diagonal", "restarts": "ipop"},
    "cma_es vd": {"covariance": "vd"},
    "cma_es vkd": {"covariance": "vkd"},
    "deep_ga": {"population": 30, "parents": 5, "sigma": 0.1, "snapshot": 4},
    "novelty_es": {"population": 20, "variant": "nsr", "means": 2, "sigma": 0.1, "optimizer": {"learning_rate": 0.1}},
    "nevergrad:TBPSA": {"population": 20},
    "nevergrad:DE": {"population": 10},
}


def test_every_solver_of_the_registry_is_tested():
    assert set(SOLVERS) <= {case.split()[0] for case in OPTIONS}


def sphere(x):
    return -float(np.sum(np.square(x, dtype=np.float64)))


def half_fail(x):
    """Worse than nothing on one side: NaN where the first parameter is high."""
    return np.nan if x[0] > 1 else sphere(x)


def make(case, dtype=np.float32, seed=3):
    kind = case.split()[0]
    if kind.startswith("nevergrad"):
        pytest.importorskip("nevergrad", reason="nevergrad is not installed")
    values = {key: dict(value) if isinstance(value, dict) else value for key, value in OPTIONS[case].items()}
    if "optimizer" in values:
        values["optimizer"]["kind"] = "adam"
    cls = find_solver(kind)
    return cls(cls.Options(**values), DIMENSION, seed, dtype)


def begin(case, value=sphere, blocks=1, seed=3):
    solver = make(case, seed=seed)
    solver.start(np.ones(DIMENSION, np.float32))
    return solver, SolverLoop(solver, value, TABLE, behaviour=lambda x: x[:3], blocks=blocks)


def same(one, other):
    one, other = one.state(), other.state()
    assert one.keys() == other.keys()
    return all(
        np.asarray(one[name]).dtype == np.asarray(other[name]).dtype and np.array_equal(one[name], other[name], True)
        if np.asarray(one[name]).dtype.kind == "f"
        else np.array_equal(one[name], other[name])
        for name in one
    )


@pytest.fixture(params=OPTIONS)
def case(request):
    return request.param


def test_improves_the_sphere(case):
    solver, loop = begin(case)
    for _ in range(80):
        loop.generation()
    assert sphere(solver.mean) > 0.7 * sphere(np.ones(DIMENSION))
    assert solver.mean.dtype == np.float32 and np.isfinite(solver.mean).all()


def test_goes_on_from_its_state_to_the_same_bits(case):
    solver, loop = begin(case, half_fail)
    for _ in range(13):
        loop.generation()
    saved = {name: np.array(value) for name, value in solver.state().items()}
    assert all(value.dtype != object for value in saved.values())
    again = make(case)
    again.restore(saved)
    assert same(solver, again)
    resumed = SolverLoop(again, half_fail, TABLE, behaviour=lambda x: x[:3])
    for _ in range(9):
        one, other = loop.generation(), resumed.generation()
        assert np.array_equal(one.returns, other.returns, equal_nan=True)
        assert same(solver, again)


def test_the_split_of_the_coordinates_changes_no_bit(case):
    one, loop = begin(case)
    other, split = begin(case, blocks=5)
    for _ in range(10):
        loop.generation(), split.generation()
        assert same(one, other)


def test_the_seed_alone_decides_whatever_the_global_generators_do(case):
    one, loop = begin(case)
    for _ in range(3):
        loop.generation()
    np.random.seed(99)
    before = np.random.get_state()[1].copy()
    other, again = begin(case)
    for _ in range(3):
        again.generation()
    assert same(one, other)
    assert np.array_equal(before, np.random.get_state()[1])


def test_a_failed_member_ranks_worst(case):
    """NaN must act as the worst return would: the same step as with a return below all others."""
    solvers = []
    for bad in (np.nan, -1e4):
        solver, loop = begin(case, lambda x, bad=bad: bad if x[1] > 1.1 else 10 + x[0] - x[2])
        loop.generation()
        solvers.append(solver)
    first, second = (solver.mean - 1 for solver in solvers)
    if case.startswith(("pepg elites", "ars", "novelty")):  # by value, or in novelty too: no return says as much
        assert np.isfinite(first).all()
    else:
        np.testing.assert_array_equal(first, second)


def test_a_generation_of_failures_leaves_finite_numbers(case):
    solver, loop = begin(case, lambda x: np.nan)
    loop.generation()
    assert np.isfinite(solver.mean).all()
    loop.value = sphere
    loop.generation()
    assert np.isfinite(solver.mean).all()


def test_wrong_shapes_are_refused_with_both_shapes(case):
    solver, _ = begin(case)
    with pytest.raises(ValueError, match=r"shape \(24,\), but has \(7,\)"):
        make(case).start(np.ones(7))
    proposal, members = solver.ask(), solver.options.members(DIMENSION)
    sums = np.zeros((1, DIMENSION), np.float32)
    with pytest.raises(ValueError, match=f"must be {members} returns.*but there are {members + 1}"):
        solver.tell(proposal, Results.of(np.zeros(members + 1)), sums)
    with pytest.raises(ValueError, match=r"sums must have shape \(moments, 24\), but have \(24,\)"):
        solver.tell(proposal, Results.of(np.zeros(members)), sums[0])
    with pytest.raises(ValueError, match="steps has shape"):
        results = Results.of(np.zeros(members))
        dataclasses.replace(results, steps=results.steps[1:])


def test_wrong_order_of_calls_is_a_runtime_error(case):
    with pytest.raises(RuntimeError, match="ask before start"):
        make(case).ask()
    solver, loop = begin(case)
    proposal = solver.ask()
    assert solver.ask() is proposal  # until it is told
    results = loop.generation()
    with pytest.raises(RuntimeError, match="tell before ask"):
        solver.tell(proposal, results, np.zeros((1, DIMENSION), np.float32))


def test_proposals_travel_as_vectors_and_rows(case):
    solver, _ = begin(case)
    proposal = solver.ask()
    assert type(proposal) is solver.Proposal
    assert all(vector.ndim == 1 for vector in proposal.vectors())
    assert proposal.rows is None or proposal.rows.shape == (solver.rows, DIMENSION)
    assert solver.mean.shape == (DIMENSION,)


def test_reports_are_numbers_and_memory_is_predicted(case):
    solver, loop = begin(case)
    loop.generation()
    assert all(isinstance(value, float) for value in solver.report().values())
    assert solver.options.memory(10**6) >= 4 * 10**6
