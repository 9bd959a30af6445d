"""Any solver by ask and tell, over the registry: the bits of training, files, domains, and what is refused."""

import contextlib
import re

import numpy as np
import pytest

import mpies
from mpies import AskTell, ConfigError, RunError, UserError
from mpies.comm.serial import Serial
from mpies.config.loading import validate_config
from mpies.runs.directory import open_run
from mpies.runs.formats import hdf5
from mpies.runs.formats.policy_file import select
from mpies.solvers.loop import SolverLoop
from mpies.training.trainer import make_trainer
from tests.solvers.test_contract import OPTIONS, have_same_bits, same
from tests.support import HOME

DIMENSION, NOISE = 24, 1 << 16


# One of each way: on the noise table, with a payload, with rows, with behaviours, restarts, and of other packages.
SOME = ("openai_es", "pepg elites", "cr_fm_nes", "cma_es diagonal", "deep_ga", "novelty_es nsra", "nevergrad:DE")


@pytest.fixture(params=SOME)
def case(request):
    if request.param.startswith("nevergrad"):
        pytest.importorskip("nevergrad", reason="nevergrad is not installed")
    return request.param


every_solver = pytest.mark.parametrize("case", OPTIONS, indirect=True)


def make(case, x0=None, **arguments):
    start = np.ones(DIMENSION) if x0 is None else x0
    return AskTell(case.split()[0], start, **{"seed": 3, "noise_size": NOISE, **arguments, **OPTIONS[case]})


def cost(x):
    """NaN where the first parameter is above 1."""
    return np.nan if x[0] > 1 else float(np.sum(np.square(x, dtype=np.float64)))


def run(es, generations):
    """Generations with their costs.  Returns the members of all."""
    asked = []
    for _ in range(generations):
        asked.append(es.ask())
        es.tell([cost(x) for x in asked[-1]])
    return asked


def test_the_bits_are_those_of_training(case, tmp_path):
    solver = {"kind": case.split()[0], **OPTIONS[case]}
    environment = {"id": "function:rosenbrock", "dimension": DIMENSION, "shift": 0.5}
    values = {"seed": 7, "environment": environment, "solver": solver, "noise": {"size": NOISE}}
    config = validate_config({**values, "stop": {"generations": 6}, "evaluation": {"every": 0}}, "x")
    states = []
    with contextlib.closing(open_run(tmp_path / "run", config)) as run:
        trainer = make_trainer(config, Serial(), run)
        trainer.on_generation = lambda snapshot: states.append(snapshot.state)
        trainer.train()
    es = make(case, np.zeros(DIMENSION), seed=7, maximize=True, dtype=np.float32)
    assert len(states) == 6
    for state in states:
        es.tell([trainer.task.env.value(x) for x in es.ask()])

        expected = select(state, "solver/")
        assert es.solver.state().keys() == expected.keys()
        for name, value in es.solver.state().items():
            assert have_same_bits(value, expected[name]), name


def test_costs_are_minimised(case):
    es, twin = make(case), make(case, maximize=True)
    for _ in range(12):
        members = es.ask()
        es.tell([float(x @ x) for x in members])
        twin.tell([-float(x @ x) for x in twin.ask()])
    assert same(es.solver, twin.solver) and es.best_value == -twin.best_value
    assert es.mean.dtype == members.dtype == np.float64 and es.mean.shape == (DIMENSION,)
    assert es.best_value == float(es.best_x @ es.best_x)
    assert es.generation == 12 and es.evaluations == 12 * len(members)
    assert all(np.isfinite(value) for value in es.report().values())


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_loaded_search_goes_on_bit_for_bit(case, is_asked, tmp_path):
    es = make(case, bounds=(-2, [5] * (DIMENSION - 1) + [None]), integers=[2, 5])
    run(es, 7)
    if is_asked:
        es.ask()
    es.save(tmp_path / "es.h5")
    again = AskTell.load(tmp_path / "es.h5")
    assert same(es.solver, again.solver) and have_same_bits(es.best_x, again.best_x)
    if is_asked:  # values that were computed meanwhile can be told at once
        members = es.ask()
        for search in (es, again):
            search.tell([cost(x) for x in members])
    for one, other in zip(run(es, 5), run(again, 5), strict=True):
        assert have_same_bits(one, other)
    assert same(es.solver, again.solver)
    assert (es.generation, es.evaluations, es.best_value) == (again.generation, again.evaluations, again.best_value)


def test_members_are_the_same_until_they_are_told_whatever_happens_to_them(case):
    es, other = make(case), make(case)
    members = es.ask()
    members[:] = np.nan
    assert have_same_bits(es.ask(), other.ask())
    for search in (es, other):
        search.tell(np.arange(len(members)))
    assert have_same_bits(es.best_x, other.best_x) and es.best_value == 0


@every_solver
def test_any_solver_keeps_to_the_domain(case):
    low, high = np.full(DIMENSION, 0.25), np.full(DIMENSION, 3.0)
    high[7], low[9] = np.inf, -np.inf
    es = make(case, bounds=(low, high), integers=[0, 4])
    assert np.allclose(es.mean, 1)
    for _ in range(15):
        members = es.ask()
        assert (members >= low).all() and (members <= high).all()
        assert (members[:, [0, 4]] % 1 == 0).all() and (members[:, 1] % 1 != 0).any()
        es.tell([float(np.sum((x - 7) ** 2)) for x in members])
        assert (es.mean >= low).all() and (es.mean <= high).all()


def test_members_from_far_away_lie_within_the_bounds():
    """So far away that float64 cannot tell where in its period of the bounds a number is."""
    for sigma in (1e18, 1e22, 1e200):
        members = AskTell("snes", [0.5, 0.5], sigma=sigma, bounds=(0, 1), population=50).ask()
        assert (members >= 0).all() and (members <= 1).all()


def test_integers_have_equal_shares_between_their_bounds():
    es = AskTell("openai_es", [2.0, 2.0], bounds=(0.7, 3.9), integers=[0], sigma=20.0, population=3000)
    counts = np.unique(es.ask()[:, 0], return_counts=True)
    assert counts[0].tolist() == [1, 2, 3] and counts[1].min() > 800


def test_cma_es_does_not_stall_on_integers():
    """Two steep real coordinates make the step so small that rounded ones would never change again."""
    goal, weight = np.array([3, -2, 7, 0, 1, 0, 1.25, 0.5]), np.array([1] * 6 + [1e4] * 2)
    es = AskTell("cma_es", np.zeros(8), sigma=0.3, seed=2, integers=range(6))
    for _ in range(200):
        es.tell([float(np.sum((x - goal) ** 2 * weight)) for x in es.ask()])
    assert es.best_value < 1e-6  # above 1 where pycma is not told of them


def test_behaviours_can_be_told_and_keep_their_size(tmp_path):
    options = {"seed": 1, "noise_size": NOISE, "population": 20, "means": 2}
    one, other = (AskTell("novelty_es", np.ones(DIMENSION), **options) for _ in range(2))
    for _ in range(4):
        for es, behaves in ((one, lambda x: x[:8]), (other, lambda x: x[:1] ** 2)):
            members = es.ask()
            es.tell([x @ x for x in members], [behaves(x) for x in members] if es is other else None)
    assert one.solver.past.shape == (4, 8) and other.solver.past.shape == (4, 1)
    with pytest.raises(UserError, match=r"behaviours must be numbers of shape \(\d+, b\), but is a list of"):
        es.tell(np.zeros(len(es.ask())), behaviours=[["far"]] * len(es.ask()))
    one.save(tmp_path / "es.h5")
    for es in (one, AskTell.load(tmp_path / "es.h5")):
        with pytest.raises(UserError, match=r"behaviours must have shape \(\d+, 8\), but have \(3,\)"):
            es.tell(np.zeros(len(es.ask())), np.zeros(3))


def test_the_solver_of_the_documentation_runs(here):
    blocks = re.findall(r"```python\n(.*?)```", (HOME / "docs" / "solvers.md").read_text(), re.DOTALL)
    (here / "cross_entropy.py").write_text(next(block for block in blocks if "class CrossEntropy(" in block))
    es = AskTell("cross_entropy.py:CrossEntropy", np.ones(5), sigma=0.5, population=40)
    run(es, 30)
    assert es.mean.dtype == np.float32 and es.best_value < 0.05
    es.save("es.h5")
    assert same(AskTell.load("es.h5").solver, es.solver)
    found = mpies.minimize(lambda x: float(x @ x), np.ones(5), es.kind, generations=30, population=40, sigma=0.5)
    assert found.x.dtype == np.float64 and found.value < 0.05


def test_a_failed_member_ranks_worst_and_is_never_the_best():
    searches = [AskTell("snes", np.ones(5), population=6) for _ in range(2)]
    for es, bad in zip(searches, ([np.nan, -np.inf, None], [90, 91, 92]), strict=True):
        es.ask()
        es.tell([*bad, 3, 1, 2])
    assert same(searches[0].solver, searches[1].solver) and searches[0].best_value == 1
    assert repr(searches[0]) == "AskTell('snes', 5 parameters, generation 1, best value 1)"


@every_solver
def test_one_parameter_is_enough(case):
    es = make(case, [0.9])
    run(es, 20)
    assert es.mean.shape == (1,) and es.best_value < 0.8


@pytest.mark.parametrize(
    "arguments, line",
    [
        (("snes", [1, 2], {"sigam": 1}), r"solver snes: solver.sigam is not a key; did you mean solver.sigma\?"),
        (("sness", [1, 2], {}), "kind.*sness.*did you mean snes"),
        (("snes", [1, 2], {"episodes": 3}), "episodes is for environments"),
        (("snes", [1, 2], {"dtype": np.int32}), "dtype must be float64 or float32, but is <class 'numpy.int32'>"),
        (("snes", [1, 2], {"noise_size": "big"}), "noise_size must be a whole number from 2 on.*but is 'big'"),
        (("cma_es", [1, 2], {"memory_limit": 1e-12}), "memory_limit"),
        ((0.5, [1, 2], {}), "solver must be a text such as 'cma_es', but is 0.5; the step size is sigma="),
        (("snes", [[1, 2]], {}), r"x0 must be a vector.*shape \(1, 2\)"),
        (("snes", [], {}), r"x0 must be a vector.*shape \(0,\)"),
        (("snes", [1, np.nan], {}), "x0 must be finite, but is nan at coordinate 1"),
        (("snes", [0, 0], {"bounds": [(-5, 5), (-5, 5)]}), "bounds of coordinate 0 must be low < high, but are -5"),
        (("cma_es", [1, 2], {"population": 2}), "solver.population must be at least 4"),
        (("snes", ["a", "b"], {}), "x0 must be a vector of numbers, but is a list of 2"),
        (("snes", [1, 2], {"bounds": (0, 1)}), "x0 must lie within the bounds, but is 2 at coordinate 1"),
        (("snes", [1, 2], {"bounds": (0, [3, 4, 5])}), "high must be a number or 2 numbers, one for each coordinate"),
        (("snes", [1, 2], {"bounds": 5}), r"bounds must be \(low, high\), but is 5"),
        (("snes", [1, 2, 3], {"bounds": [(0, 1), (0, 1, 2), (0, 1)]}), r"bounds must be \(low, high\), but is a list"),
        (("snes", [1, 2], {"population": np.float32(6.5)}), "solver.population must be a whole number, but is 6.5"),
        (("snes", [1, 2], {"bounds": (1, 1)}), "bounds of coordinate 0 must be low < high, but are 1 and 1"),
        (("snes", [1, 2], {"bounds": (0.2, 0.8), "integers": [0]}), "bounds of coordinate 0 hold no whole number"),
        (("snes", [1, 2], {"integers": [2]}), r"integers must be indices from 0 to 1.*but is \[2\]"),
        (("snes", [1, 2], {"integers": [[0], [0, 1]]}), "integers must be indices"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments, line):
    kind, x0, options = arguments
    with pytest.raises(UserError, match=line) as error:
        AskTell(kind, x0, **options)
    assert "\n" not in str(error.value)
    assert isinstance(error.value, ConfigError) or not isinstance(kind, str) or kind == "snes"


def test_wrong_values_and_wrong_order_are_refused():
    es = AskTell("snes", np.zeros(3), population=8)
    with pytest.raises(RuntimeError, match="tell before ask"):
        es.tell([1, 2])
    es.ask()
    for values, line in (([1, 2], r"needs 8 values.*shape \(2,\)"), (3.0, "needs 8 values"), (["a"] * 8, "8 numbers")):
        with pytest.raises(UserError, match=line):
            es.tell(values)
    es.tell(range(8))
    with pytest.raises(RuntimeError, match="tell before ask"):
        es.tell(range(8))
    loop = SolverLoop(es.solver)  # what it is built on
    with pytest.raises(RuntimeError, match="tell before ask"):
        loop.tell(np.zeros(8))


def test_files_of_another_kind_are_refused(tmp_path):
    path = tmp_path / "es.h5"
    es = AskTell("snes", np.zeros(3))
    es.save(path)
    assert es.best_x is None and AskTell.load(path).best_x is None
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(RunError, match="damaged"):
        AskTell.load(path)
    path.write_bytes(hdf5.pack({"x": np.zeros(3)}, {}))
    with pytest.raises(RunError, match=r"AskTell\.save; open runs with mpies\.load, policies with Policy\.load"):
        AskTell.load(path)
    with pytest.raises(RunError, match="cannot be read"):
        AskTell.load(tmp_path / "none.h5")
    with pytest.raises(RunError, match="cannot be written"):
        es.save(tmp_path / "none" / "es.h5")


def test_numbers_of_numpy_are_those_of_python_and_saved(tmp_path):
    es = AskTell("snes", [1.0, 2.0], seed=np.int64(2**60 + 1), maximize=np.bool_(True), noise_size=np.int32(100))
    np.testing.assert_array_equal(es.ask(), AskTell("snes", [1.0, 2.0], seed=2**60 + 1, noise_size=100).ask())
    es.tell(es.ask().sum(axis=1))
    es.save(tmp_path / "state.h5")
    loaded = AskTell.load(tmp_path / "state.h5")
    assert (loaded.seed, loaded.maximize) == (2**60 + 1, True) and same(es.solver, loaded.solver)
