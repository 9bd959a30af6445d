"""Own solvers that are wrong in one way each: `mpies train` says in one line what to mend."""

import re
import textwrap

import pytest

from mpies.runs.metrics import read_digests, read_metrics

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
CONFIG = """
environment: {{id: "function:sphere", dimension: 6, shift: 1}}
solver: {{kind: "wrong.py:{name}", population: 8}}
noise: {{size: 1000}}
evaluation: {{every: 0}}
stop: {{generations: 20}}
"""
ONLY_RANK_0 = ", which rank 0 alone has; put what it needs into the proposal, which every rank gets"
STREAM = "take random numbers from mpies.core.streams.stream(self.seed, SOLVER, self.generation)"

# What is wrong: (body of the class, what the line says).  `...` stands for anything.
WRONG = {
    # the state
    "a forgotten vector": (
        """
        def begin(self):
            super().begin()
            self.momentum = np.zeros(self.dimension, np.float32)
        def update(self, proposal, results, moments):
            self.momentum = np.float32(0.9) * self.momentum + moments[0]
            self.mean += np.float32(0.05) * self.momentum
        """,
        "attribute `momentum` changes the step but is not in state_fields; add it",
    ),
    "a forgotten vector that update makes": (
        """
        def update(self, proposal, results, moments):
            self.momentum = getattr(self, "momentum", 0) + moments[0]
            self.mean += np.float32(0.05) * self.momentum
        """,
        "attribute `momentum` changes the step but is not in state_fields; add it",
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
        "attribute `stalled` changes the step but is not in state_fields; add it",
    ),
    "two forgotten attributes": (
        """
        def begin(self):
            super().begin()
            self.best, self.path = -np.inf, [0.0]
        def propose(self):
            return Gaussian(self.mean, self.sigma * np.float32(1 + 0.1 * sum(self.path)))
        def update(self, proposal, results, moments):
            super().update(proposal, results, moments)
            self.best = max(self.best, float(results.returns.max()))
            self.path.append(0.5)
            self.mean += np.float32(1e-3 * self.best)
        """,
        "attributes `best` and `path` change the step but are not in state_fields; add them, as a number, an array "
        "or an object with the methods state and restore",
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
        f"attribute `random` changes the step but cannot be saved; {STREAM}",
    ),
    "a global random generator": (
        """
        def update(self, proposal, results, moments):
            self.mean += np.random.standard_normal(self.dimension).astype(np.float32)
        """,
        f"the same step taken twice from the same state gives two results; {STREAM}, and read no clock and no global",
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
        "`rate` does not come back from a checkpoint as it was (float32 of shape () before, float64 of shape () "
        "after); keep it as a Python number or as an array",
    ),
    "state_fields that is a text": (
        'state_fields = ("mean")',
        'state_fields must be a tuple of names such as ("mean", "sigma"), but is \'mean\'; a tuple of one name needs '
        "a comma",
    ),
    "state_fields without the mean": (
        'state_fields = ("sigma",)',
        'state_fields must be a tuple of names such as ("mean", "sigma") and must have "mean" among them, but is '
        "('sigma',)",
    ),
    "a state field that nobody sets": (
        'state_fields = ("mean", "sigma", "momentum")',
        "begin must set `momentum`, which state_fields names, but there is none",
    ),
    "a state field that cannot be saved": (
        """
        state_fields = ("mean", "sigma", "memory")
        def begin(self):
            super().begin()
            self.memory = {}
        """,
        "state_fields names `memory`, which must be an array, a number or an optimizer, but after begin is a dict",
    ),
    "an object that can be saved and not restored": (
        """
        state_fields = ("mean", "sigma", "path")
        def begin(self):
            super().begin()
            self.path = type("Path", (), {"state": lambda path: {"length": 1}})()
        """,
        "state_fields names `path`, whose class has a method state, so it needs a method restore as well",
    ),
    "update changes the results": (
        """
        def update(self, proposal, results, moments):
            np.nan_to_num(results.returns, copy=False, nan=-100)
            super().update(proposal, results, moments)
        """,
        "update raised ValueError: assignment destination is read-only (wrong.py, line 62); change a copy of the "
        "results",
    ),
    "compute_weights changes the results": (
        """
        def compute_weights(self, results, proposal):
            results.returns[:] = -results.returns
            return super().compute_weights(results, proposal)
        """,
        "compute_weights raised ValueError: assignment destination is read-only (wrong.py, line 62); change a copy of "
        "the results",
    ),
    # what only rank 0 has
    "weights from the state": (
        """
        def compute_weights(self, results, proposal):
            weights = centred_ranks(results.returns)[None] * self.sigma[0]
            return Weights(weights, no_square(weights.shape[1]))
        """,
        f"compute_weights reads `sigma`{ONLY_RANK_0}",
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
        f"compute_weights reads `baseline`{ONLY_RANK_0}",
    ),
    "members from the state": (
        """
        def sample(self, proposal, noise, sign, out):
            out[:] = self.mean + self.sigma * noise
            return ()
        """,
        "write reads `mean`, which rank 0 alone has;...",
    ),
    "members from a random generator": (
        """
        def sample(self, proposal, noise, sign, out):
            out[:] = proposal.mean + np.random.standard_normal(self.dimension)
            return ()
        """,
        "write or sample gives two results for the same arguments; they must be pure functions of these,...",
    ),
    # wrong types and shapes
    "propose returns nothing": (
        "def propose(self): Gaussian(self.mean, self.sigma)",
        "propose must return a Gaussian, but returned None",
    ),
    "propose returns another proposal": (
        "def propose(self): return Proposal(self.mean)",
        "propose must return a Gaussian, but returned a Proposal; or write Proposal = Proposal into the class",
    ),
    "a proposal in double precision": (
        "def propose(self): return Gaussian(self.mean.astype(float), self.sigma)",
        "propose must return a mean, float32 of shape (6,), but it is float64 of shape (6,)",
    ),
    "a scale of the wrong length": (
        "def propose(self): return Gaussian(self.mean, self.sigma[:3])",
        "propose must return a scale, float32 of shape (1,) or (6,), but it is float32 of shape (3,)",
    ),
    "rows that nobody expects": (
        "def propose(self): return Gaussian(self.mean, self.sigma, rows=np.zeros((2, 6), np.float32))",
        "propose must return at most 0 (rows in the class) rows of 6 numbers, but returned 2",
    ),
    "weights that are an array": (
        "def compute_weights(self, results, proposal): return centred_ranks(results.returns)",
        "compute_weights must return a Weights of mpies.solvers.moments, but returned float32 of shape (8,)",
    ),
    "weights without an axis of orders": (
        "def compute_weights(self, results, proposal): return Weights(centred_ranks(results.returns), no_square(8))",
        "compute_weights must return linear weights (orders, 8), a column for each noise row of 8 members, as float32, "
        "but they are float32 of shape (8,)",
    ),
    "weights in double precision": (
        "def compute_weights(self, results, proposal): return Weights(results.returns[None], no_square(8))",
        "compute_weights must return linear weights (orders, 8), a column for each noise row of 8 members, as float32, "
        "but they are float64 of shape (1, 8)",
    ),
    "square weights of another length": (
        """
        def compute_weights(self, results, proposal):
            return Weights(centred_ranks(results.returns)[None], np.ones((1, 7), np.float32))
        """,
        "compute_weights must return square weights (orders, 8), a column for each noise row of 8 members, as float32, "
        "but they are float32 of shape (1, 7)",
    ),
    "weights that are NaN": (
        """
        def compute_weights(self, results, proposal):
            with np.errstate(all="ignore"):
                weights = (results.returns / results.returns.std() / np.inf * np.inf).astype(np.float32)[None]
            return Weights(weights, no_square(8))
        """,
        "compute_weights must return linear weights (orders, 8), a column for each noise row of 8 members, as float32, "
        "but 8 of 8 are NaN or infinite",
    ),
    "update returns the mean": (
        "def update(self, proposal, results, moments): return self.mean + moments[0]",
        "update must change self.mean and return None, but returned float32 of shape (6,)",
    ),
    "a mean in double precision": (
        "def update(self, proposal, results, moments): self.mean = self.mean + 0.1 * moments[0].astype(float)",
        "update must leave a mean, float32 of shape (6,), but it is float64 of shape (6,)",
    ),
    "a mean of another shape": (
        "def update(self, proposal, results, moments): self.mean = self.mean + moments",
        "update must leave a mean, float32 of shape (6,), but it is float32 of shape (1, 6)",
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
        "write and sample must return 2 numbers (payload_size in the class), but returned a tuple of 1",
    ),
    "a payload of text": (
        """
        payload_size = 2
        def sample(self, proposal, noise, sign, out):
            super().sample(proposal, noise, sign, out)
            return 1.0, "x"
        """,
        "write and sample must return 2 numbers (payload_size in the class), but returned a str among them",
    ),
    "a payload of vectors": (
        """
        payload_size = 1
        def sample(self, proposal, noise, sign, out):
            super().sample(proposal, noise, sign, out)
            return [noise * noise]
        """,
        "write and sample must return 1 numbers (payload_size in the class), but returned float32 of shape (6,) among "
        "them",
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
        "other ranks make a Proposal from its vectors in the order of its fields, but that fails or gives other "
        "vectors;...",
    ),
    "a proposal that changes its vectors": (
        """
        import dataclasses
        @dataclasses.dataclass(frozen=True)
        class Proposal(Gaussian):
            def __post_init__(self):
                object.__setattr__(self, "scale", self.scale / 2)
        def propose(self):
            return self.Proposal(self.mean, self.sigma)
        """,
        "other ranks make a Proposal from its vectors in the order of its fields, but that fails or gives other "
        "vectors;...",
    ),
    "a vector in the other byte order": (
        """
        import dataclasses
        @dataclasses.dataclass(frozen=True)
        class Proposal(Gaussian):
            path: np.ndarray
        def propose(self):
            return self.Proposal(self.mean, self.sigma, self.sigma.astype(">f4"))
        """,
        "propose must return a Proposal of vectors in the byte order of this machine, but its path has the other one;"
        "...",
    ),
    "report returns a number": (
        "def report(self): return 5",
        "report must return a dict of names to numbers, but returned 5",
    ),
    "report returns a vector": (
        'def report(self): return {"sigma": self.sigma}',
        "report must return a dict of names to numbers, but sigma is float32 of shape (6,)",
    ),
    "report takes a column of every run": (
        'def report(self): return {"steps": 5}',
        "report must name columns of its own, but every run has steps; choose another name",
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
        "propose returns no rows after begin or restore, but a run that goes on has none of those that were sent "
        "before; send them in the first proposal after each of these",
    ),
    # exceptions
    "begin raises": (
        "def begin(self): self.sigma = np.full(self.dimension, self.options.sigm)",
        "begin raised AttributeError: 'RightOptions' object has no attribute 'sigm' (wrong.py, line 61)",
    ),
    "the constructor raises": (
        "def __init__(self, options): pass",
        "__init__ raised TypeError: ... (own.py, line ...)",
    ),
    "the constructor does not call that of Solver": (
        "def __init__(self, *arguments, **keywords): pass",
        "__init__ must call super().__init__ with all the arguments that it was given",
    ),
    "update needs weights that are not there": (
        """
        compute_weights = Solver.compute_weights
        """,
        "update raised IndexError: index 0 is out of bounds for axis 0 with size 0 (wrong.py, line 35); the class has "
        "no compute_weights, so the moments that update gets are empty",
    ),
    "update raises": (
        """
        def update(self, proposal, results, moments):
            return np.ones(3) @ np.ones(4)
        """,
        "update raised ValueError: matmul: ... (wrong.py, line 62)",
    ),
    "update raises in a later generation": (
        """
        def update(self, proposal, results, moments):
            super().update(proposal, results, moments)
            1 / (self.generation - 4)
        """,
        "update raised ZeroDivisionError: division by zero (wrong.py, line 63)",
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
        "propose raised SystemExit (wrong.py, line 61)",
    ),
    "sample raises": (
        'def sample(self, proposal, noise, sign, out): raise KeyError("x")',
        "write raised KeyError: 'x' (wrong.py, line 61)",
    ),
    "report raises": (
        'def report(self): return {"x": [][0]}',
        "report raised IndexError: list index out of range (wrong.py, line 61)",
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
        "attribute `last` changes the step or predict_mean but is not in state_fields; add it",
    ),
    "predict_mean raises": (
        "def predict_mean(self): return self.mean + self.momentum",
        "predict_mean raised AttributeError: 'Wrong' object has no attribute 'momentum' (wrong.py, line 63)",
    ),
    "predict_mean returns a mean of another shape": (
        "def predict_mean(self): return self.mean[:3]",
        "predict_mean must return a mean, float32 of shape (6,), but it is float32 of shape (3,)",
    ),
    "rows of two generations": (
        "rows = 1",
        "overlap does not work with rows; leave it out, or send what the members need as vectors of the proposal",
    ),
}
WRONG_EXTERNAL = {
    "candidates from an unseeded generator": (
        """
        def draw(self):
            return list(self.best + np.random.default_rng().standard_normal((self.rows, self.dimension)))
        """,
        f"the same step taken twice from the same state gives two results; {STREAM}, and read no clock and no global",
    ),
    "too few candidates": (
        "def draw(self): return super().draw()[:-1]",
        "propose must return 8 rows of 6 numbers, but returned 7",
    ),
    "no recommendation": (
        "def recommend(self): return None",
        "update must leave a mean, float32 of shape (6,), but it is float32 of shape ()",
    ),
    "learn raises": (
        "def learn(self, candidates, costs): candidates[8]",
        "update raised IndexError: list index out of range (wrong.py, line 61)",
    ),
}


def write_solver(folder, name, body, base="Right"):
    """Write wrong.py with the class Wrong, and config.yaml for the class `name` of that file."""
    wrong = f"\n\nclass Wrong({base}):\n" + textwrap.indent(textwrap.dedent(body).strip() or "pass", "    ") + "\n"
    (folder / "wrong.py").write_text(RIGHT + wrong)
    (folder / "config.yaml").write_text(CONFIG.format(name=name))
    return folder / "config.yaml"


def assert_line(outcome, line):
    """The command ended with exit code 2, and with this line alone on standard error."""
    assert outcome.code == 2, (outcome.code, outcome.stderr[-2000:])
    pattern = re.escape(f"mpies: solver.kind wrong.py:Wrong: {line}").replace(r"\.\.\.", ".+")
    assert re.fullmatch(pattern, outcome.stderr.strip()), outcome.stderr[-2000:]
    assert "Traceback" not in outcome.stdout


@pytest.mark.parametrize(
    ("base", "what"), [*(("Right", what) for what in WRONG), *(("RightExternal", what) for what in WRONG_EXTERNAL)]
)
def test_the_user_sees_one_line(base, what, run_mpies, tmp_path):
    body, line = (WRONG | WRONG_EXTERNAL)[what]
    outcome = run_mpies(0, "train", write_solver(tmp_path, "Wrong", body, base), "--out", "run")
    assert_line(outcome, line)


@pytest.mark.parametrize("what", WRONG_WITH_OVERLAP)
def test_with_overlap_it_is_one_line_too(what, run_mpies, tmp_path):
    body, line = WRONG_WITH_OVERLAP[what]
    config = write_solver(tmp_path, "Wrong", textwrap.dedent(OVERLAPS) + textwrap.dedent(body))
    assert_line(run_mpies(0, "train", config, "--out", "run", "overlap=0.5"), line)


@pytest.mark.parametrize("name", ["Right", "RightExternal"])
def test_a_solver_that_is_right_trains_and_goes_on_to_the_same_bits(name, run_mpies, tmp_path):
    config = write_solver(tmp_path, name, "")
    for ranks, out, generations in ((0, "whole", 40), (2, "parts", 20), (0, "parts", 40)):
        outcome = run_mpies(ranks, "train", config, "--out", out, f"stop.generations={generations}")
        assert outcome.code == 0, outcome.stderr
    assert read_digests(tmp_path / "parts") == read_digests(tmp_path / "whole")


def test_what_was_finished_before_is_on_disk_and_the_traceback_is_in_the_log(run_mpies, tmp_path):
    config = write_solver(tmp_path, "Wrong", WRONG["update raises in a later generation"][0])
    assert run_mpies(0, "train", config, "--out", "run").code == 2
    assert [row["generation"] for row in read_metrics(tmp_path / "run")] == ["1", "2", "3", "4"]
    text = (tmp_path / "run" / "log.txt").read_text()
    assert "DEBUG rank 0: Traceback" in text and "1 / (self.generation - 4)" in text
    assert run_mpies(0, "train", config, "--out", "run").code == 2  # it goes on, and comes to the same generation
    write_solver(tmp_path, "Wrong", WRONG["update raises in a later generation"][0].replace("- 4", "+ 1"))
    assert run_mpies(0, "train", config, "--out", "run").code == 0
    assert len(read_metrics(tmp_path / "run")) == 20


def test_a_run_from_before_a_state_field_was_added_does_not_go_on(run_mpies, tmp_path):
    body = WRONG["a forgotten vector"][0]
    config = write_solver(tmp_path, "Wrong", body)
    assert run_mpies(0, "train", config, "--out", "run").code == 2
    write_solver(tmp_path, "Wrong", 'state_fields = ("mean", "sigma", "momentum")\n' + textwrap.dedent(body))
    assert_line(run_mpies(0, "train", config, "--out", "run"), "the state has no 'momentum';...")
    assert run_mpies(0, "train", config, "--out", "other").code == 0


@pytest.mark.parametrize("what", ["weights from the state", "members from the state", "update raises", "begin raises"])
def test_on_two_ranks_it_is_the_same_line(what, run_mpies, tmp_path):
    body, line = WRONG[what]
    config = write_solver(tmp_path, "Wrong", body)
    outcome = run_mpies(0, "train", config, "--out", "run", "--ranks", "2")
    assert_line(outcome, line)
