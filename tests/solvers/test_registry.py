import sys
from pathlib import Path

import numpy as np
import pytest

from mpies.solvers import SOLVERS, find_solver
from mpies.solvers.base import Solver
from mpies.solvers.openai_es import OpenAIES
from tests.solvers.single_generation import FunctionLoop

MINE = """
import numpy as np
from mpies.solvers.base import Gaussian, Solver
from mpies.solvers.options import Population

class MineOptions(Population):
    kind: str = "mine"
    sigma: float = 0.5

class Mine(Solver):
    Options = MineOptions
    def begin(self): pass
    def propose(self): return Gaussian(self.mean, np.full(1, self.options.sigma, np.float32))
    def update(self, proposal, results, moments): self.mean = self.mean + 1
"""


@pytest.fixture
def write_solver(tmp_path, monkeypatch):
    """Write a file in an empty folder, the working directory.  Returns the kind of the class Mine in it."""
    monkeypatch.chdir(tmp_path)
    # as installed: the checkout's own folder `solvers` cannot be imported by that name
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not (Path(path) / "solvers").is_dir()])
    before = set(sys.modules)

    def write(text, name="mine.py"):
        (tmp_path / name).write_text(text)
        return f"{name}:Mine"

    yield write
    for name in set(sys.modules) - before:
        if name.startswith("_solver_"):
            del sys.modules[name]


def test_the_names_of_the_registry():
    names = "openai_es pepg pgpe ars snes sep_cma cr_fm_nes cma_es deep_ga novelty_es"
    assert " ".join(SOLVERS) == names and find_solver("openai_es") is SOLVERS["openai_es"] is OpenAIES


@pytest.mark.parametrize(("kind", "hint"), [("snez", "did you mean snes?"), ("q", "use openai_es, for instance")])
def test_an_unknown_kind_is_refused_with_all_that_there_are(kind, hint):
    with pytest.raises(ValueError, match=r"must be one of openai_es, .*path/to/file.py:Class, but is ") as raised:
        find_solver(kind)
    assert str(raised.value).endswith(f"{kind!r}; {hint}")


def test_a_solver_of_a_file_has_its_kind_and_runs(write_solver):
    kind = write_solver(MINE)
    cls = find_solver(kind)
    assert issubclass(cls, Solver) and cls.__name__ == "Mine"
    assert cls.Options().kind == kind and cls.Options(sigma=2).sigma == 2
    solver = cls(cls.Options(), 3)
    solver.start(np.zeros(3))
    FunctionLoop(solver, lambda x: 0.0).run_generation()
    np.testing.assert_array_equal(solver.mean, np.ones(3))


def test_files_of_the_same_name_in_two_folders_are_two_modules(write_solver, tmp_path, monkeypatch):
    first = find_solver(write_solver(MINE))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    (tmp_path / "other" / "mine.py").write_text(MINE.replace("0.5", "0.25"))
    assert find_solver("mine.py:Mine").Options().sigma == 0.25
    assert first.Options().sigma == 0.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise KeyboardInterrupt", "^$"),  # as Ctrl-C does
        ("import sys; sys.exit(0)", r"mine.py cannot be imported \(SystemExit: 0\)"),
        ("1 / 0", r"mine.py cannot be imported \(ZeroDivisionError: division by zero\)"),
        ("Mine = 5", "mine.py:Mine: Mine must be a subclass of mpies.solvers.base.Solver, but is 5"),
        ("", "mine.py has no Mine; it has nothing of the kind$"),
        (MINE.replace("Mine(", "Other("), "mine.py has no Mine; it has Other$"),
        (
            "x = 1\n1 +",
            r"mine.py cannot be imported \(SyntaxError: invalid syntax \(mine.py, line 2\)\)$",
        ),
        (
            MINE.replace("    Options = MineOptions\n", ""),
            "Mine must be a complete solver, but lacks Options, a subclass",
        ),
        (MINE.replace("def update", "def step"), "Mine must be a complete solver, but lacks update"),
    ],
)
def test_a_file_that_is_no_solver_is_refused_in_one_line_and_read_again(text, message, write_solver):
    kind = write_solver(text)
    with pytest.raises((ValueError, KeyboardInterrupt), match=message) as raised:
        find_solver(kind)
    assert "\n" not in str(raised.value)
    write_solver(MINE)
    assert find_solver(kind).__name__ == "Mine"


def test_a_file_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"nowhere\.py:Mine: there is no file nowhere\.py in /"):
        find_solver("nowhere.py:Mine")
