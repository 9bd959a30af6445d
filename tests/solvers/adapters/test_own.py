"""The checks of an own solver: they change nothing, they pass for every solver of ours, and they are few."""

import sys

import numpy as np
import pytest

from mpies.core.errors import SolverProblem
from mpies.runs.metrics import read_digests
from mpies.solvers import find_solver
from mpies.solvers.adapters.own import CHECKED, OwnSolver
from mpies.solvers.adapters.problem import describe
from mpies.solvers.base import Results
from mpies.solvers.external import ExternalSolver
from mpies.solvers.loop import SolverLoop
from mpies.solvers.sampling.directions import Directions
from mpies.solvers.snes import SNES
from tests.solvers import test_contract as contract

MINE = """
from mpies.solvers import find_solver

class Mine(find_solver("{kind}")):
    pass
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A function from the text of a file to the class Mine in it, as solver.kind names it."""
    monkeypatch.chdir(tmp_path)

    def find(text):
        (tmp_path / "mine.py").write_text(text)
        sys.modules.pop("_solver_mine", None)
        return find_solver("mine.py:Mine")

    yield find
    sys.modules.pop("_solver_mine", None)


def run(solver, generations):
    """The states after these generations, from a start at 1."""
    solver.start(np.ones(contract.DIMENSION, np.float32))
    loop, states = SolverLoop(solver, contract.half_fail, contract.TABLE, contract.first_three), []
    for _ in range(generations):
        loop.run_generation()
        states.append({name: np.array(value).tobytes() for name, value in solver.state().items()})
    return states


@pytest.mark.parametrize("case", [case for case in contract.OPTIONS if not case.startswith("nevergrad")])
def test_every_solver_passes_as_an_own_one_and_takes_the_same_steps(case, own):
    ours = contract.make(case)
    cls = own(MINE.format(kind=case.split()[0]))
    values = ours.options.model_dump() | {"kind": "mine.py:Mine"}
    generations = 10 if isinstance(ours, ExternalSolver) else 40
    solver = cls(cls.Options(**values), contract.DIMENSION, 3)
    assert isinstance(solver, OwnSolver)
    assert run(solver, generations) == run(ours, generations)


COUNTING = """
from mpies.solvers.snes import SNES

class Mine(SNES):
    updates = []
    def update(self, proposal, results, moments):
        self.updates.append(self.generation)
        super().update(proposal, results, moments)
"""


def test_the_checks_are_few_after_the_first_steps(own):
    cls = own(COUNTING)
    solver = cls(cls.Options(), contract.DIMENSION)
    run(solver, 70)
    checked = [generation for generation in range(70) if cls.updates.count(generation) == 2]
    assert checked == [*range(CHECKED), 31, 63]
    assert len(cls.updates) == 70 + len(checked)
    cls.updates.clear()
    state = solver.state()
    solver.restore(state)
    loop = SolverLoop(solver, contract.sphere, contract.TABLE)
    for _ in range(20):
        loop.run_generation()
    assert len(cls.updates) == 20 + CHECKED  # a process that goes on from a checkpoint is checked at its start


CONFIG = """
environment: {{id: CartPole-v1, max_steps: 60}}
policy: {{hidden: [8]}}
solver: {{kind: "{kind}", population: 16, sigma: 0.1}}
noise: {{kind: low_rank, size: 100000}}
evaluation: {{every: 0, episodes: 5}}
overlap: 1
stop: {{generations: 20}}
"""


def test_with_overlap_and_low_rank_a_subclass_trains_to_the_digests_of_its_base(run_mpies, write_config, tmp_path):
    (tmp_path / "mine.py").write_text(MINE.format(kind="openai_es"))
    digests = []
    for ranks, kind in ((0, "openai_es"), (2, "mine.py:Mine")):
        config, out = write_config(CONFIG.format(kind=kind)), f"run-{ranks}"
        outcome = run_mpies(ranks, "train", config, "--out", out)
        assert outcome.code == 0, outcome.stderr
        digests.append(read_digests(tmp_path / out))
    assert digests[0] == digests[1] and len(digests[0]) == 20


@pytest.mark.parametrize("has_sample", [False, True])
def test_low_rank_noise_takes_a_scale_for_each_parameter_only_where_the_class_uses_it(has_sample, own):
    sample = "def sample(self, proposal, noise, sign, out):\n        out[:] = proposal.mean + proposal.scale * noise\n"
    cls = own(
        "from mpies.solvers.snes import SNES\n"
        "class Mine(SNES):\n"
        "    def compute_weights(self, results, proposal):\n"
        "        weights = super().compute_weights(results, proposal)\n"
        "        return type(weights)(weights.linear, weights.square[:0])\n"
        "    def update(self, proposal, results, moments):\n"
        "        self.mean += proposal.scale * moments[0]\n" + ("    " + sample if has_sample else "")
    )
    solver = cls(cls.Options(), 30, directions=Directions(30, ((0, 5, 5),)))
    solver.start(np.ones(30, np.float32))
    loop = SolverLoop(solver, contract.sphere, contract.TABLE)
    if has_sample:
        loop.run_generation()
        return
    with pytest.raises(SolverProblem, match=r"must return a scale of one number, .*low rank, float32 of shape \(1,\)"):
        loop.run_generation()


def test_names_of_the_checks_are_free_for_the_user(own):
    cls = own(
        "from mpies.solvers.snes import SNES\n"
        "class Mine(SNES):\n"
        "    _kind = 'mine'\n"
        "    state_fields = ('mean', 'sigma', '_steps')\n"
        "    def begin(self):\n"
        "        super().begin()\n"
        "        self._steps, self._is_checked = 0, False\n"
        "    def _problem(self):\n"
        "        return 1\n"
        "    def update(self, proposal, results, moments):\n"
        "        super().update(proposal, results, moments)\n"
        "        self._steps += self._problem()\n"
    )
    solver = cls(cls.Options(), contract.DIMENSION)
    run(solver, 5)
    assert solver._steps == 5 and solver._kind == "mine"


def test_a_solver_of_ours_is_not_checked():
    assert not issubclass(SNES, OwnSolver)
    solver = SNES(SNES.Options(), 3)
    solver.start(np.zeros(3))
    with pytest.raises(RuntimeError, match="tell before ask"):
        solver.tell(None, Results.of(np.zeros(7)), np.zeros((2, 3), np.float32))


def test_the_checks_leave_the_order_of_calls_to_the_base(own):
    cls = own(COUNTING)
    solver = cls(cls.Options(), 3)
    with pytest.raises(RuntimeError, match="ask before start"):
        solver.ask()
    solver.start(np.zeros(3))
    with pytest.raises(RuntimeError, match="tell before ask"):
        solver.tell(None, Results.of(np.zeros(7)), np.zeros((2, 3), np.float32))


def test_a_state_without_a_field_is_refused(own):
    cls = own(COUNTING)
    solver = cls(cls.Options(), 3)
    with pytest.raises(SolverProblem, match=r"solver.kind mine.py:Mine: the state has no 'sigma'; .* another --out"):
        solver.restore({"mean": np.zeros(3), "generation": 5})


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "None"),
        (2.5, "2.5"),
        (np.zeros((2, 3)), "float64 of shape (2, 3)"),
        ((1, 2), "a tuple of 2"),
        ({}, "a dict"),
    ],
)
def test_values_are_described_in_a_few_words(value, words):
    assert describe(value) == words
