"""Custom solvers that are wrong in one way each: `check_solver` says in one line what to mend."""

import re
import sys
import textwrap

import numpy as np
import pytest

from mpies.core.errors import SolverProblem
from mpies.solvers import SOLVERS, check_solver, find_solver
from mpies.solvers.base import Gaussian, Solver
from mpies.solvers.options import Population
from tests.solvers import test_contract as contract

# A solver that is right.  The wrong ones below are subclasses in the same file, and each differs in one thing.
RIGHT = """
import sys

import numpy as np

from mpies.solvers.base import Gaussian, Proposal, Solver
from mpies.solvers.external import ExternalSolver
from mpies.solvers.moments import Weights, no_square
from mpies.solvers.options import Population, WholeCandidates
from mpies.solvers.shaping import centred_ranks
from mpies.core.streams import SOLVER, stream


class RightOptions(Population):
    kind: str = "right"
    sigma: float = 0.5


class Right(Solver):
    Options = RightOptions
    state_fields = ("mean", "sigma")

    def begin(self):
        self.sigma = np.full(self.dimension, self.options.sigma, np.float32)
        self.step_norm = float("nan")

    def propose(self):
        return Gaussian(self.mean, self.sigma)

    def compute_weights(self, results, proposal):
        weights = centred_ranks(results.returns)[None]
        return Weights(weights, no_square(weights.shape[1]))

    def update(self, proposal, results, moments):
        step = np.float32(0.05) * moments[0]
        self.step_norm = float(np.abs(step).sum())  # not in the state, and the next step does not need it
        self.mean += step

    def report(self):
        return {"step_norm": self.step_norm}


class RightExternal(ExternalSolver):
    Options = WholeCandidates

    def create_optimizer(self):
        self.best, self.lowest = self.origin.astype(np.float64), np.inf

    def draw(self):
        return list(self.best + 0.3 * np.random.standard_normal((self.rows, self.dimension)))

    def learn(self, candidates, costs):
        if costs.min() < self.lowest:
            self.best, self.lowest = candidates[int(np.argmin(costs))], costs.min()

    def recommend(self):
        return self.best
"""

STREAM = "take random numbers from mpies.core.streams.stream(self.seed, SOLVER, self.generation)"
RESTORED = "a solver that is restored from its state takes another step"
LACKS = f"{RESTORED}; add what the step needs to state_fields, which lacks"

# What is wrong: (body of the class, what the line says).  `...` stands for anything.
WRONG = {
    "a forgotten vector": (
        """
        def begin(self):
            super().begin()
            self.momentum = np.zeros(self.dimension, np.float32)
        def update(self, proposal, results, moments):
            self.momentum = np.float32(0.9) * self.momentum + moments[0]
            self.mean += np.float32(0.05) * self.momentum
        """,
        f"{LACKS} `momentum`, `step_norm`; {STREAM}, and read no clock and no global",
    ),
    "a forgotten counter that matters in the tenth generation": (
        """
        def begin(self):
            super().begin()
            self.stalled = 0
        def update(self, proposal, results, moments):
            super().update(proposal, results, moments)
            self.stalled += 1
            if self.stalled == 10:
                self.sigma = self.sigma * np.float32(0.5)
        """,
        f"{LACKS} `stalled`, `step_norm`;...",
    ),
    "a random generator in an attribute": (
        """
        def begin(self):
            super().begin()
            self.random = np.random.default_rng(self.seed)
        def update(self, proposal, results, moments):
            super().update(proposal, results, moments)
            self.mean += self.random.standard_normal(self.dimension).astype(np.float32)
        """,
        f"{LACKS} `random`, `step_norm`; {STREAM}, and...",
    ),
    "a global random generator": (
        """
        def update(self, proposal, results, moments):
            self.mean += np.random.standard_normal(self.dimension).astype(np.float32)
        """,
        f"{LACKS} `step_norm`; {STREAM}, and read no clock and no global",
    ),
    "propose changes the state": (
        """
        def propose(self):
            self.sigma = self.sigma * np.float32(0.9)
            return super().propose()
        """,
        "propose changes `sigma`, which the state has; change it in update, and not in propose",
    ),
    "a state that comes back as another type": (
        """
        state_fields = ("mean", "sigma", "rate")
        def begin(self):
            super().begin()
            self.rate = np.float32(0.05)
        """,
        "`rate` does not come back from a checkpoint as it was; keep it as a Python number or an array",
    ),
    "state_fields without the mean": (
        'state_fields = ("sigma",)',
        'state_fields must be a tuple of names such as ("mean", "sigma"), with "mean" among them',
    ),
    "a state field that cannot be saved": (
        """
        state_fields = ("mean", "sigma", "memory")
        def begin(self):
            super().begin()
            self.memory = {}
        """,
        "`memory` of the state must be a number, an array of numbers or an optimizer, but is...",
    ),
    "weights from the state": (
        """
        def compute_weights(self, results, proposal):
            weights = centred_ranks(results.returns)[None] * self.sigma[0]
            return Weights(weights, no_square(weights.shape[1]))
        """,
        "compute_weights raised AttributeError: 'Wrong' object has no attribute 'sigma' (wrong.py, line 62); other...",
    ),
    "weights from an attribute that update changes": (
        """
        def __init__(self, *arguments, **keywords):
            super().__init__(*arguments, **keywords)
            self.baseline = 0.0
        def compute_weights(self, results, proposal):
            weights = (results.returns - self.baseline).astype(np.float32)[None]
            return Weights(weights, no_square(weights.shape[1]))
        def update(self, proposal, results, moments):
            super().update(proposal, results, moments)
            self.baseline = float(results.returns.mean())
        """,
        "compute_weights gives another result on another rank; other ranks have its arguments, the...",
    ),
    "members from the state": (
        """
        def sample(self, proposal, noise, sign, out):
            out[:] = self.mean + self.sigma * noise
            return ()
        """,
        "sample raised AttributeError: 'Wrong' object has no attribute 'mean' (wrong.py, line 62); other ranks...",
    ),
    "members from a random generator": (
        """
        def sample(self, proposal, noise, sign, out):
            out[:] = proposal.mean + np.random.standard_normal(self.dimension)
            return ()
        """,
        "write or sample gives another result on another rank; other ranks...",
    ),
    "propose returns another proposal": (
        "def propose(self): return Proposal(self.mean)",
        "propose must return a Gaussian (Proposal in the class), but returned a Proposal",
    ),
    "a proposal in double precision": (
        "def propose(self): return Gaussian(self.mean.astype(float), self.sigma)",
        "propose must return a mean, float32 of shape (6,), but it is an array of shape (6,) of float64",
    ),
    "a scale of the wrong length": (
        "def propose(self): return Gaussian(self.mean, self.sigma[:3])",
        "propose must return a scale, float32 of shape (1,) or (6,), but it is an array of shape (3,) of float32",
    ),
    "rows that nobody expects": (
        "def propose(self): return Gaussian(self.mean, self.sigma, rows=np.zeros((2, 6), np.float32))",
        "propose must return at most 0 rows (rows in the class) of 6 numbers, but has (2, 6)",
    ),
    "weights that are an array": (
        "def compute_weights(self, results, proposal): return centred_ranks(results.returns)",
        "compute_weights must return a Weights of mpies.solvers.moments, but returned an array of shape (8,)...",
    ),
    "weights in double precision": (
        "def compute_weights(self, results, proposal): return Weights(results.returns[None], no_square(8))",
        "compute_weights must return linear weights (orders, rows), with 8 columns for each population, as float32, but"
        " they are an array of shape (1, 8) of float64",
    ),
    "square weights of another length": (
        """
        def compute_weights(self, results, proposal):
            return Weights(centred_ranks(results.returns)[None], np.ones((1, 7), np.float32))
        """,
        "compute_weights must return square weights (orders, rows), with 8 columns for each population, as float32, but"
        " they are an array of shape (1, 7) of float32",
    ),
    "weights that are NaN": (
        """
        def compute_weights(self, results, proposal):
            with np.errstate(all="ignore"):
                weights = (results.returns / results.returns.std() / np.inf * np.inf).astype(np.float32)[None]
            return Weights(weights, no_square(8))
        """,
        "compute_weights must return linear weights (orders, rows), with 8 columns for each population, as float32, but"
        " 8 of 8 are NaN or infinite",
    ),
    "update returns the mean": (
        "def update(self, proposal, results, moments): return self.mean + moments[0]",
        "update must change self.mean and return None, but returned an array of shape (6,) of float32",
    ),
    "a mean of another shape": (
        "def update(self, proposal, results, moments): self.mean = self.mean + moments",
        "update must leave a mean, float32 of shape (6,), but it is an array of shape (1, 6) of float32",
    ),
    "a mean that is NaN": (
        "def update(self, proposal, results, moments): self.mean[2] = np.nan",
        "update must leave a mean, float32 of shape (6,), but 1 of 6 are NaN or infinite",
    ),
    "a payload of another length": (
        """
        payload_size = 2
        def sample(self, proposal, noise, sign, out):
            super().sample(proposal, noise, sign, out)
            return (1.0,)
        """,
        "write or sample must return 2 numbers (payload_size in the class), but returned a tuple of 1",
    ),
    "a proposal whose fields are keywords": (
        """
        import dataclasses
        @dataclasses.dataclass(frozen=True, kw_only=True)
        class Proposal(Gaussian):
            path: np.ndarray
        def propose(self):
            return self.Proposal(self.mean, self.sigma, path=self.sigma)
        """,
        "check_solver raised TypeError: Wrong.Proposal.__init__() takes 3 positional arguments but 4...",
    ),
    "a proposal with a matrix": (
        """
        import dataclasses
        @dataclasses.dataclass(frozen=True)
        class Proposal(Gaussian):
            path: np.ndarray
        def propose(self):
            return self.Proposal(self.mean, self.sigma, np.outer(self.sigma, self.sigma))
        """,
        "propose must return vectors in its proposal, but one is an array of shape (6, 6) of float32",
    ),
    "report returns a number": (
        "def report(self): return 5",
        "report must return a dict of names, without commas, to numbers, but returned 5",
    ),
    "a state field that nobody sets": (
        'state_fields = ("mean", "sigma", "momentum")',
        "state raised AttributeError: 'Wrong' object has no attribute 'momentum' (base.py, line...",
    ),
    "rows that are sent every ten generations only": (
        """
        rows = 1
        def propose(self):
            rows = self.mean[None] if self.generation % 10 == 0 else None
            return Gaussian(self.mean, self.sigma, rows=rows)
        def write(self, proposal, indices, member, out):
            out[:] = proposal.rows[0] + proposal.scale * self.noise(indices[member])
            return ()
        """,
        f"{RESTORED};...",
    ),
    "begin raises": (
        "def begin(self): self.sigma = np.full(self.dimension, self.options.sigm)",
        "begin raised AttributeError: 'RightOptions' object has no attribute 'sigm' (wrong.py, line 61)",
    ),
    "report returns a name that metrics.csv cannot hold": (
        "def report(self): return {'a,b': 5}",
        "report must return a dict of names, without commas, to numbers, but has 'a,b': 5",
    ),
    "the constructor raises": (
        "def __init__(self, options): pass",
        "__init__ raised TypeError: ... (custom_solver.py, line ...)",
    ),
    "the constructor does not call that of Solver": (
        "def __init__(self, *arguments, **keywords): pass",
        "__init__ must call super().__init__ with all the arguments that it was given",
    ),
    "a message of several lines with control characters": (
        r"""
        def propose(self):
            raise RuntimeError("one\n\n  two \x1b[31m three")
        """,
        r"propose raised RuntimeError: one two \x1b[31m three (wrong.py, line 62)",
    ),
    "propose ends Python": (
        "def propose(self): sys.exit()",
        "propose raised SystemExit...(wrong.py, line 61)",
    ),
    "sample raises": (
        'def sample(self, proposal, noise, sign, out): raise KeyError("x")',
        "sample raised KeyError: 'x' (wrong.py, line 61)",
    ),
}
OVERLAPS = """
class Options(RightOptions):
    overlaps = True
"""
WRONG_WITH_OVERLAP = {
    "a forgotten vector that only predict_mean needs": (
        """
        def predict_mean(self):
            return self.mean + getattr(self, "last", np.float32(0))
        def update(self, proposal, results, moments):
            self.last = np.float32(0.05) * moments[0]
            self.mean += self.last
        """,
        f"{LACKS} `last`, `step_norm`;...",
    ),
    "predict_mean raises": (
        "def predict_mean(self): return self.mean + self.momentum",
        "predict_mean raised AttributeError: 'Wrong' object has no attribute 'momentum' (wrong.py, line 63)",
    ),
    "predict_mean returns a mean of another shape": (
        "def predict_mean(self): return self.mean[:3]",
        "predict_mean must return a mean, float32 of shape (6,), but it is an array of shape (3,) of float32",
    ),
}
WRONG_EXTERNAL = {
    "candidates from an unseeded generator": (
        """
        def draw(self):
            return list(self.best + np.random.default_rng().standard_normal((self.rows, self.dimension)))
        """,
        f"{LACKS} `_candidates`, `best`, `history`, `lowest`; {STREAM}, and...",
    ),
    "no recommendation": (
        "def recommend(self): return None",
        "update must leave a mean, float32 of shape (6,), but it is an array of shape () of float32",
    ),
    "learn raises": (
        "def learn(self, candidates, costs): candidates[8]",
        "learn raised IndexError: list index out of range (wrong.py, line 61)",
    ),
}

RAISED = "raised ZeroDivisionError: division by zero (wrong.py, line"

# A body of the solver, and what the line says.
METHODS = {
    "def population_indices(self, generation, batch): 1 / 0": f"population_indices {RAISED}",
    "def moments(self, indices, weights, start, stop): 1 / 0": f"moments {RAISED}",
    "def moments(self, indices, weights, start, stop): return np.zeros((1, 3), np.float32)": (
        "moments gives other numbers for blocks of coordinates than for all, but every rank sums a block"
    ),
    "def start(self, mean): 1 / 0": f"start {RAISED}",
    "def sample(self, proposal, noise, sign, out): raise GeneratorExit": "sample raised GeneratorExit (wrong.py, line",
    "def state(self): return {**super().state(), 'phase': 'first'}": (
        "`phase` of the state must be a number, an array of numbers or an optimizer, but is the text 'first'"
    ),
}

# A body of the Options, and what the line says.
OPTIONS = {
    "def members(self, dimension): 1 / 0": f"members {RAISED}",
    "def noise_rows(self, dimension): 1 / 0": f"noise_rows {RAISED}",
    "plays_mean = property(lambda self: 1 / 0)": f"<lambda> {RAISED}",
}


@pytest.fixture
def find(tmp_path, monkeypatch):
    """A function from the text that follows RIGHT in a file to the class Wrong in it, as solver.kind names it."""
    monkeypatch.chdir(tmp_path)

    def find(text):
        (tmp_path / "wrong.py").write_text(RIGHT + text)
        sys.modules.pop(f"_custom_{tmp_path}/wrong.py", None)
        return find_solver("wrong.py:Wrong")

    yield find
    sys.modules.pop(f"_custom_{tmp_path}/wrong.py", None)


def class_of(body, base="Right"):
    return f"\n\nclass Wrong({base}):\n" + textwrap.indent(textwrap.dedent(body).strip() or "pass", "    ") + "\n"


def problem_of(solver):
    with pytest.raises(SolverProblem) as raised:
        check_solver(solver, solver.Options(population=8), 6)
    assert "\n" not in str(raised.value)
    return str(raised.value)


CASES = [("Right", *case) for case in WRONG.values()]
CASES += [
    ("Right", textwrap.dedent(OVERLAPS) + textwrap.dedent(body), line) for body, line in WRONG_WITH_OVERLAP.values()
]
CASES += [("RightExternal", *case) for case in WRONG_EXTERNAL.values()]


@pytest.mark.parametrize(("base", "body", "line"), CASES, ids=[*WRONG, *WRONG_WITH_OVERLAP, *WRONG_EXTERNAL])
def test_what_is_wrong_is_said_in_one_line(base, body, line, find):
    pattern = re.escape(f"solver.kind wrong.py:Wrong: {line}").replace(r"\.\.\.", ".+")
    message = problem_of(find(class_of(body, base)))
    assert re.fullmatch(pattern, message), message


@pytest.mark.parametrize(
    ("solver", "options", "line"),
    [*((body, "", line) for body, line in METHODS.items()), *(("", body, line) for body, line in OPTIONS.items())],
)
def test_a_wrong_method_is_named(solver, options, line, find):
    mine = f"\n\nclass Mine(RightOptions):\n{textwrap.indent(options or 'pass', '    ')}\n"
    text = f"import dataclasses\n{mine}{class_of('Options = Mine' + chr(10) + solver)}"
    assert problem_of(find(text)).startswith(f"solver.kind wrong.py:Wrong: {line}")


@pytest.mark.parametrize("base", ["Right", "RightExternal"])
def test_a_solver_that_is_right_passes(base, find):
    solver = find(class_of("", base))
    check_solver(solver)
    check_solver(solver, solver.Options(population=6), 100)


@pytest.mark.parametrize("case", [case for case in contract.OPTIONS if not case.startswith("nevergrad")])
def test_every_solver_of_ours_passes(case):
    solver = contract.make(case)
    check_solver(type(solver), solver.options, contract.DIMENSION)


def test_a_solver_for_one_number_of_parameters_passes_with_that_number_alone(find):
    solver = find(class_of("def begin(self):\n    self.sigma = np.ones(50, np.float32)\n"))
    check_solver(solver, dimension=50)
    with pytest.raises(
        SolverProblem, match=r"a scale, float32 of shape \(1,\) or \(20,\), but it is an array of shape"
    ):
        check_solver(solver)
    with pytest.raises(
        SolverProblem, match=r"a scale, float32 of shape \(1,\) or \(60,\), but it is an array of shape"
    ):
        check_solver(solver, dimension=60)


class Unfinished(Solver):
    Options = Population

    def begin(self):
        pass


class Needy(SOLVERS["snes"]):
    class Options(Population):
        rate: float


class Forgetful(Solver):
    Options = Population

    def begin(self):
        self.speed = np.zeros(self.dimension, np.float32)

    def propose(self):
        return Gaussian(self.mean, np.ones(1, np.float32))

    def update(self, proposal, results, moments):
        self.speed = self.speed + np.float32(0.1)
        self.mean += self.speed


@pytest.mark.parametrize(
    ("solver", "line"),
    [
        (Unfinished, "Unfinished: must be a complete solver, but lacks propose, update"),
        (
            type("Bare", (Forgetful,), {"Options": 5}),
            "Bare: must be a complete solver, but lacks Options, a subclass of mpies.solvers.options",
        ),
        (Needy, "Needy: check_solver raised ValidationError: 1 validation error for Options rate Field required"),
        (Forgetful, f"Forgetful: {LACKS} `speed`"),
    ],
)
def test_a_class_that_is_in_no_config_is_tried_out_as_well(solver, line):
    with pytest.raises(SolverProblem, match=f"^{line}"):
        check_solver(solver)
