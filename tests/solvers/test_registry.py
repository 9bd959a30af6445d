import sys
from pathlib import Path

import pytest

from mpies.solvers import SOLVERS, find_solver
from mpies.solvers.openai_es import OpenAIES

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

    def write(text):
        (tmp_path / "mine.py").write_text(text)
        return "mine.py:Mine"

    return write


def test_what_the_solvers_allow():
    options = {kind: solver.Options for kind, solver in SOLVERS.items()}
    assert {kind for kind in options if options[kind].overlaps} == {"ars", "openai_es", "pepg", "pgpe", "snes"}
    assert {kind for kind in options if options[kind].takes_low_rank} == {"ars", "novelty_es", "openai_es"}


def test_the_names_of_the_registry():
    names = "openai_es pepg pgpe ars snes sep_cma cr_fm_nes cma_es deep_ga novelty_es"
    assert " ".join(SOLVERS) == names and find_solver("openai_es") is SOLVERS["openai_es"] is OpenAIES


@pytest.mark.parametrize(("kind", "hint"), [("snez", "did you mean snes?"), ("q", "use openai_es, for instance")])
def test_an_unknown_kind_is_refused_with_all_that_there_are(kind, hint):
    with pytest.raises(ValueError, match=r"must be one of openai_es, .*path/to/file.py:Class, but is ") as raised:
        find_solver(kind)
    assert str(raised.value).endswith(f"{kind!r}; {hint}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 / 0", r"mine.py cannot be imported \(ZeroDivisionError: division by zero\)"),
        ("Mine = 5", "mine.py:Mine: Mine must be a subclass of mpies.solvers.base.Solver, but is 5"),
        (MINE.replace("Mine(", "Other("), "mine.py has no Mine; it has Other$"),
        (
            MINE.replace("    Options = MineOptions\n", ""),
            "Mine must be a complete solver, but lacks Options, a subclass",
        ),
        (MINE.replace("def update", "def step"), "Mine must be a complete solver, but lacks update"),
    ],
)
def test_a_file_that_is_no_solver_is_refused_in_one_line_and_read_again(text, message, write_solver):
    kind = write_solver(text)
    with pytest.raises(ValueError, match=message) as raised:
        find_solver(kind)
    assert "\n" not in str(raised.value)
    write_solver(MINE)
    assert find_solver(kind).__name__ == "Mine"


def test_a_file_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"nowhere\.py:Mine: there is no file nowhere\.py in /"):
        find_solver("nowhere.py:Mine")
