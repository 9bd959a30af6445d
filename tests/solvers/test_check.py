"""Custom solvers that are wrong in one way each: `check_solver` says in one line what to mend."""

import re
import sys
import textwrap

import numpy as np
import pytest

from mpies.core.errors import SolverProblem
from mpies.solvers import SOLVERS, check_solver, find_solver
from mpies.solvers.base import Solver
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
    fitness: float = 1.0  # no word, as in solvers of mpies


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

# Bodies of a wrong class, each below what is said of it.  `...` stands for anything.
WRONG = r"""
# ...state_fields, which lacks `momentum`, `step_norm`;...
def begin(self):
    super().begin()
    self.momentum = np.zeros(self.dimension, np.float32)
def update(self, proposal, results, moments):
    self.momentum = np.float32(0.9) * self.momentum + moments[0]
    self.mean += np.float32(0.05) * self.momentum
# ...state_fields, which lacks `stalled`, `step_norm`;...
def begin(self):
    super().begin()
    self.stalled = 0
def update(self, proposal, results, moments):
    super().update(proposal, results, moments)
    self.stalled += 1
    if self.stalled == 10:
        self.sigma = self.sigma * np.float32(0.5)
# ...which lacks `step_norm`; take random numbers from ...streams.stream(self.seed, SOLVER, self.generation), and...
def update(self, proposal, results, moments):
    self.mean += np.random.standard_normal(self.dimension).astype(np.float32)
# propose changes `sigma`, which the state has; change it in update, and not in propose
def propose(self):
    self.sigma = self.sigma * np.float32(0.9)
    return super().propose()
# `rate` does not come back from a checkpoint as it was; keep it as a Python number or an array
state_fields = ("mean", "sigma", "rate")
def begin(self):
    super().begin()
    self.rate = np.float32(0.05)
# state_fields must be a tuple of names such as ("mean", "sigma"), with "mean" among them
state_fields = ("sigma",)
# `memory` of the state must be a number, an array of numbers or an optimizer, but is...
state_fields = ("mean", "sigma", "memory")
def begin(self):
    super().begin()
    self.memory = {}
# compute_weights raised AttributeError: 'Wrong' object has no attribute 'sigma' (wrong.py, line 62); other...
def compute_weights(self, results, proposal):
    weights = centred_ranks(results.returns)[None] * self.sigma[0]
    return Weights(weights, no_square(weights.shape[1]))
# compute_weights gives another result on another rank; other ranks have its arguments, the...
def __init__(self, *arguments, **keywords):
    super().__init__(*arguments, **keywords)
    self.baseline = 0.0
def compute_weights(self, results, proposal):
    weights = (results.returns - self.baseline).astype(np.float32)[None]
    return Weights(weights, no_square(weights.shape[1]))
def update(self, proposal, results, moments):
    super().update(proposal, results, moments)
    self.baseline = float(results.returns.mean())
# sample raised AttributeError: 'Wrong' object has no attribute 'mean' (wrong.py, line 62); other ranks...
def sample(self, proposal, noise, sign, out):
    out[:] = self.mean + self.sigma * noise
    return ()
# write or sample gives another result on another rank; other ranks...
def sample(self, proposal, noise, sign, out):
    out[:] = proposal.mean + np.random.standard_normal(self.dimension)
    return ()
# propose must return a Gaussian (Proposal in the class), but returned a Proposal
def propose(self): return Proposal(self.mean)
# propose must return a mean, float32 of shape (6,), but it is an array of shape (6,) of float64
def propose(self): return Gaussian(self.mean.astype(float), self.sigma)
# propose must return a scale, float32 of shape (1,) or (6,), but it is an array of shape (3,) of float32
def propose(self): return Gaussian(self.mean, self.sigma[:3])
# propose must return at most 0 rows (rows in the class) of 6 numbers, but has (2, 6)
def propose(self): return Gaussian(self.mean, self.sigma, rows=np.zeros((2, 6), np.float32))
# compute_weights must return a Weights of mpies.solvers.moments, but returned an array of shape (8,)...
def compute_weights(self, results, proposal): return centred_ranks(results.returns)
# compute_weights must return linear weights (orders, rows), with 8 columns for each population, as float32, but...
def compute_weights(self, results, proposal): return Weights(results.returns[None], no_square(8))
# compute_weights must return square weights (orders, rows), with 8 columns for each population, as float32, but...
def compute_weights(self, results, proposal):
    return Weights(centred_ranks(results.returns)[None], np.ones((1, 7), np.float32))
# compute_weights must return linear weights (orders, rows), with 8 columns for each population, as float32, but...
def compute_weights(self, results, proposal):
    with np.errstate(all="ignore"):
        weights = (results.returns / results.returns.std() / np.inf * np.inf).astype(np.float32)[None]
    return Weights(weights, no_square(8))
# update must change self.mean and return None, but returned an array of shape (6,) of float32
def update(self, proposal, results, moments): return self.mean + moments[0]
# update must leave a mean, float32 of shape (6,), but it is an array of shape (1, 6) of float32
def update(self, proposal, results, moments): self.mean = self.mean + moments
# update must leave a mean, float32 of shape (6,), but 1 of 6 are NaN or infinite
def update(self, proposal, results, moments): self.mean[2] = np.nan
# write or sample must return 2 numbers (payload_size in the class), but returned a tuple of 1
payload_size = 2
def sample(self, proposal, noise, sign, out):
    super().sample(proposal, noise, sign, out)
    return (1.0,)
# check_solver raised TypeError: Wrong.Proposal.__init__() takes 3 positional arguments but 4...
import dataclasses
@dataclasses.dataclass(frozen=True, kw_only=True)
class Proposal(Gaussian):
    path: np.ndarray
def propose(self):
    return self.Proposal(self.mean, self.sigma, path=self.sigma)
# propose must return vectors in its proposal, but one is an array of shape (6, 6) of float32
import dataclasses
@dataclasses.dataclass(frozen=True)
class Proposal(Gaussian):
    path: np.ndarray
def propose(self):
    return self.Proposal(self.mean, self.sigma, np.outer(self.sigma, self.sigma))
# report must return a dict of names, without commas, to numbers, but returned 5
def report(self): return 5
# state raised AttributeError: 'Wrong' object has no attribute 'momentum' (base.py, line...
state_fields = ("mean", "sigma", "momentum")
# a solver that is restored from its state takes another step;...
rows = 1
def propose(self):
    rows = self.mean[None] if self.generation % 10 == 0 else None
    return Gaussian(self.mean, self.sigma, rows=rows)
def write(self, proposal, indices, member, out):
    out[:] = proposal.rows[0] + proposal.scale * self.noise(indices[member])
    return ()
# report must return a dict of names, without commas, to numbers, but has 'a,b': 5
def report(self): return {'a,b': 5}
# __init__ raised TypeError: ... (custom_solver.py, line ...)
def __init__(self, options): pass
# __init__ must call super().__init__ with all the arguments that it was given
def __init__(self, *arguments, **keywords): pass
# propose raised RuntimeError: one two \x1b[31m three (wrong.py, line 62)
def propose(self):
    raise RuntimeError("one\n\n  two \x1b[31m three")
# propose raised SystemExit...(wrong.py, line 61)
def propose(self): sys.exit()
# ...state_fields, which lacks `last`, `step_norm`;...
class Options(RightOptions):
    overlaps = True
def predict_mean(self):
    return self.mean + getattr(self, "last", np.float32(0))
def update(self, proposal, results, moments):
    self.last = np.float32(0.05) * moments[0]
    self.mean += self.last
# predict_mean must return a mean, float32 of shape (6,), but it is an array of shape (3,) of float32
class Options(RightOptions):
    overlaps = True
def predict_mean(self): return self.mean[:3]
# moments raised ZeroDivisionError: division by zero (wrong.py, line...
def moments(self, indices, weights, start, stop): 1 / 0
# moments gives other numbers for blocks of coordinates than for all, but every rank sums a block
def moments(self, indices, weights, start, stop): return np.zeros((1, 3), np.float32)
# `phase` of the state must be a number, an array of numbers or an optimizer, but is the text 'first'
def state(self): return {**super().state(), 'phase': 'first'}
# members raised ZeroDivisionError: division by zero (wrong.py, line...
class Options(RightOptions):
    def members(self, dimension): 1 / 0
"""
WRONG_EXTERNAL = """
# ...state_fields, which lacks `_candidates`, `best`, `history`, `lowest`;...
def draw(self):
    return list(self.best + np.random.default_rng().standard_normal((self.rows, self.dimension)))
# update must leave a mean, float32 of shape (6,), but it is an array of shape () of float32
def recommend(self): return None
"""


def read_cases(text):
    """The cases of such a text: [(body, line)]."""
    cases = [case.partition("\n") for case in re.split(r"^# ", text, flags=re.M)[1:]]
    return [(body, line) for line, _, body in cases]


@pytest.fixture
def find(here):
    """A function from the text that follows RIGHT in a file to the class Wrong in it, as solver.kind names it."""

    def find(text):
        (here / "wrong.py").write_text(RIGHT + text)
        sys.modules.pop(f"_custom_{here}/wrong.py", None)
        return find_solver("wrong.py:Wrong")

    yield find
    sys.modules.pop(f"_custom_{here}/wrong.py", None)


def class_of(body, base="Right"):
    return f"\n\nclass Wrong({base}):\n" + textwrap.indent(textwrap.dedent(body).strip() or "pass", "    ") + "\n"


CASES = [("Right", *case) for case in read_cases(WRONG)]
CASES += [("RightExternal", *case) for case in read_cases(WRONG_EXTERNAL)]


@pytest.mark.parametrize(("base", "body", "line"), CASES)
def test_what_is_wrong_is_said_in_one_line(base, body, line, find):
    pattern = re.escape(f"solver.kind wrong.py:Wrong: {line}").replace(r"\.\.\.", ".+")
    solver = find(class_of(body, base))
    with pytest.raises(SolverProblem, match=rf"^{pattern}\Z"):
        check_solver(solver, solver.Options(population=8), 6)


# Where there is no payload, nothing need be returned.
RETURNS_NOTHING = """
def write(self, proposal, indices, member, out):
    super().write(proposal, indices, member, out)
def sample(self, proposal, noise, sign, out):
    out[:] = proposal.mean + proposal.scale * noise
"""


@pytest.mark.parametrize(("base", "body"), [("Right", ""), ("Right", RETURNS_NOTHING), ("RightExternal", "")])
def test_a_solver_that_is_right_passes(base, body, find):
    solver = find(class_of(body, base))
    check_solver(solver)
    check_solver(solver, solver.Options(population=6), 100)


@pytest.mark.parametrize("case", [case for case in contract.OPTIONS if not case.startswith("nevergrad")])
def test_every_solver_of_ours_passes(case):
    solver = contract.make(case)
    check_solver(type(solver), solver.options, contract.DIMENSION)


def test_a_solver_for_one_number_of_parameters_passes_with_that_number_alone(find):
    solver = find(class_of("def begin(self):\n    self.sigma = np.ones(50, np.float32)\n"))
    check_solver(solver, dimension=50)
    for dimension in (20, 60):
        with pytest.raises(SolverProblem, match=rf"a scale, float32 of shape \(1,\) or \({dimension},\), but it is an"):
            check_solver(solver, dimension=dimension)


class Unfinished(Solver):
    Options = Population

    def begin(self):
        pass


class Needy(SOLVERS["snes"]):
    class Options(Population):
        rate: float


class Forgetful(SOLVERS["snes"]):
    speed = np.float32(0)

    def update(self, proposal, results, moments):
        super().update(proposal, results, moments)
        self.speed = self.speed + np.float32(0.1)
        self.mean += self.speed


@pytest.mark.parametrize(
    ("solver", "line"),
    [
        (Unfinished, "Unfinished: must be a complete solver, but lacks propose, update"),
        (Needy, "Needy: check_solver raised ValidationError: 1 validation error for Options rate Field required"),
        (
            Forgetful,
            "Forgetful: a solver that is restored .*; add what the step needs to state_fields, which lacks `speed`",
        ),
    ],
)
def test_a_class_that_is_in_no_config_is_tried_out_as_well(solver, line):
    with pytest.raises(SolverProblem, match=f"^{line}"):
        check_solver(solver)
