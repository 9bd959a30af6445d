"""Methods of an own solver and of its Options that are rarely overridden: what is wrong with them is one line, too."""

import re
import textwrap

import pytest

from mpies.config.loading import load_config
from mpies.core.errors import UserError
from mpies.launch.cost import predict_cost
from mpies.solvers.loop import SolverLoop
from mpies.training.task import Task
from mpies.training.update import make_solver
from tests.solvers.test_misbehaving import CONFIG, RIGHT

RAISED = "raised ZeroDivisionError: division by zero (wrong.py, line"

# A body of the solver, and what the line says.
SOLVER = {
    "rows = '8'": "rows must be a whole number, but is a str",
    "rows = property(lambda self: 1 / 0)": f"rows {RAISED}",
    "payload_size = 'x'": "payload_size must be a whole number, but is a str",
    "wants_behaviour = property(lambda self: 1 / 0)": f"payload_size and wants_behaviour {RAISED}",
    "def population_indices(self, generation, batch): 1 / 0": f"population_indices {RAISED}",
    "def population_indices(self, generation, batch): return [1, 2]": (
        "population_indices must return 8 whole numbers, int64 of shape (8,), but returned a list of 2"
    ),
    "def population_indices(self, generation, batch): return np.full(8, 2**20)": (
        "population_indices must return 8 whole numbers, int64 of shape (8,), from 0 to 1048570, but one is 1048576"
    ),
    "def moments(self, indices, weights, start, stop): 1 / 0": f"moments {RAISED}",
    "def moments(self, indices, weights, start, stop): return np.zeros((1, 3), np.float32)": (
        "moments must return float32 of shape (orders, 6), a column for each coordinate, but returned float32 of "
        "shape (1, 3)"
    ),
    "def start(self, mean): 1 / 0": f"start {RAISED}",
    "def ask(self): 1 / 0": f"ask {RAISED}",
    "def tell(self, proposal, results, moments): 1 / 0": f"tell {RAISED}",
    "def sample(self, proposal, noise, sign, out): raise GeneratorExit": "write raised GeneratorExit (wrong.py, line",
    "def state(self): return 5": "state must return a dict of names to numbers and arrays of numbers, but returned 5",
    "def state(self): return {**super().state(), 'phase': 'first'}": (
        "state must return a dict of names to numbers and arrays of numbers, but phase is a str"
    ),
}

FIELDS = ", ".join(f"('v{number}', np.ndarray)" for number in range(12))
MANY = f"""
Proposal = dataclasses.make_dataclass("Many", [{FIELDS}], bases=(Gaussian,), frozen=True)
def propose(self): return self.Proposal(self.mean, self.sigma, *[np.zeros(2, np.float32)] * 12)
"""
SOLVER[MANY] = "propose must return a Many of at most 13 vectors, but it has 14; join some of them"

# A body of the Options, and what the line says.
OPTIONS = {
    "def members(self, dimension): 1 / 0": f"Mine.members {RAISED}",
    "def members(self, dimension): pass": "Mine.members must return a whole number of at least 1, but returned None",
    "def noise_rows(self, dimension): 1 / 0": f"Mine.noise_rows {RAISED}",
    "def noise_rows(self, dimension): return 8.0": "Mine.noise_rows must return a whole number, but returned 8.0",
    "def groups(self, dimension): 1 / 0": f"Mine.groups {RAISED}",
    "def groups(self, dimension): return np.arange(3)": (
        "Mine.groups must return whole numbers of shape (8,), one for each member, but returned int64 of shape (3,)"
    ),
    "def groups(self, dimension): return np.arange(8) - 1": (
        "Mine.groups must return numbers from 0 on, but returned -1"
    ),
    "def is_complete(self, episodes, steps): 1 / 0": f"Mine.is_complete {RAISED}",
    "def is_complete(self, episodes, steps): pass": "Mine.is_complete must return True or False, but returned None",
    "def memory(self, dimension): 1 / 0": f"Mine.memory {RAISED}",
    "def memory(self, dimension): return -1": "Mine.memory must return a whole number of bytes, but returned -1",
    "def refusal(self, dimension): raise SystemExit": "Mine.refusal raised SystemExit (wrong.py, line",
    "def refusal(self, dimension): pass": "Mine.refusal must return text, '' if it can run, but returned None",
    "def early_members(self, share, dimension): 1 / 0": f"Mine.early_members {RAISED}",
    "def early_members(self, share, dimension): return 9": (
        "Mine.early_members must return a whole number, at most that of all members, but returned 9"
    ),
    "def computed_defaults(self, dimension): 1 / 0": f"Mine.computed_defaults {RAISED}",
    "def computed_defaults(self, dimension): return {'sigma': '?'}": (
        "Mine.computed_defaults must return a dict of keys to numbers, but returned a dict"
    ),
    "plays_mean = property(lambda self: 1 / 0)": f"Mine.plays_mean {RAISED}",
    "plays_mean = property(lambda self: 1)": "Mine.plays_mean must return True or False, but returned 1",
    "check = model_validator(mode='after')(lambda self: 1 / 0)": f"a validator {RAISED}",
}


def write_solver(folder, solver="", options=""):
    """Write wrong.py with a solver Wrong and its Options, named Mine, and config.yaml.  Returns the config's path."""
    mine = f"\n\nclass Mine(RightOptions):\n{textwrap.indent(options or 'pass', '    ')}\n"
    wrong = f"\n\nclass Wrong(Right):\n    Options = Mine\n{textwrap.indent(solver, '    ')}\n"
    imports = "import dataclasses\nfrom pydantic import model_validator\n"
    (folder / "wrong.py").write_text(imports + RIGHT + mine + wrong)
    (folder / "config.yaml").write_text(CONFIG.format(name="Wrong"))
    return folder / "config.yaml"


def use(path):
    """What training does with a solver, without environments: load, check, predict, take a step."""
    config = load_config(path)
    task = Task(config)
    predict_cost(config, ranks=1)
    task.training_seeds(0, 0)
    config.solver.describe_defaults(task.dimension)
    config.solver.early_members(0.5, task.dimension)
    solver = make_solver(config, task.dimension, task.directions)
    assert isinstance(solver.rows, int)
    solver.start(task.first_policy()["parameters"])
    SolverLoop(solver, lambda x: -float(x @ x)).run_generation()


@pytest.mark.parametrize(
    ("solver", "options", "line"),
    [*((body, "", line) for body, line in SOLVER.items()), *(("", body, line) for body, line in OPTIONS.items())],
)
def test_a_wrong_method_is_one_line_that_names_it(solver, options, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as raised:
        use(write_solver(tmp_path, solver, options))
    assert f"solver.kind wrong.py:Wrong: {line}" in str(raised.value) and "\n" not in str(raised.value)


def test_a_right_one_is_used_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    use(write_solver(tmp_path))


def test_groups_may_have_any_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_solver(tmp_path, options="def groups(self, dimension): return (np.arange(8) % 3).astype(np.uint8)")
    use(path)
    seeds = Task(load_config(path)).training_seeds(2, 1)
    assert len(set(seeds.tolist())) == 3 and seeds.tolist() == seeds[[0, 1, 2, 0, 1, 2, 0, 1]].tolist()


@pytest.mark.parametrize(
    ("solver", "options"), [("rows = property(lambda self: 1 / 0)", ""), ("", "def is_complete(self, e, s): 1 / 0")]
)
def test_train_prints_the_line_alone(solver, options, run_mpies, tmp_path):
    outcome = run_mpies(0, "train", write_solver(tmp_path, solver, options), "--out", "run")
    line = re.escape(f"mpies: solver.kind wrong.py:Wrong: {'rows' if solver else 'Mine.is_complete'} {RAISED}")
    assert outcome.code == 2 and re.fullmatch(rf"{line} \d+\)", outcome.stderr.strip()), outcome.stderr
