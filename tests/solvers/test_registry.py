import sys
from pathlib import Path

import pytest

from mpies.solvers import SOLVERS, find_solver
from mpies.solvers.openai_es import OpenAIES
from tests.solvers.test_check import RIGHT

MINE = RIGHT.replace("Right(", "Mine(")


@pytest.fixture
def write_solver(here, monkeypatch):
    """Write a file in an empty folder, the working directory.  Returns the kind of the class Mine in it."""
    # as installed: the checkout's own folder `solvers` cannot be imported by that name
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not (Path(path) / "solvers").is_dir()])

    def write(text):
        (here / "mine.py").write_text(text)
        return "mine.py:Mine"

    return write


def test_the_registry_has_these_solvers_which_allow_overlap_or_low_rank():
    assert " ".join(SOLVERS) == "openai_es pepg pgpe ars snes sep_cma cr_fm_nes cma_es deep_ga novelty_es"
    assert find_solver("openai_es") is SOLVERS["openai_es"] is OpenAIES
    options = {kind: solver.Options for kind, solver in SOLVERS.items()}
    assert {kind for kind in options if options[kind].overlaps} == {"ars", "openai_es", "pepg", "pgpe", "snes"}
    assert {kind for kind in options if options[kind].takes_low_rank} == {"ars", "novelty_es", "openai_es"}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("snez", r"^must be one of openai_es, .*path/to/file.py:Class, but is 'snez'; did you mean snes\?$"),
        ("q", "^must be one of openai_es, .*path/to/file.py:Class, but is 'q'; use openai_es, for instance$"),
        ("nowhere.py:Mine", r"nowhere\.py:Mine: there is no file nowhere\.py in /"),
    ],
)
def test_an_unknown_kind_is_refused_with_all_that_there_are_and_so_is_a_file_that_is_not_there(kind, message):
    with pytest.raises(ValueError, match=message):
        find_solver(kind)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 / 0", r"mine.py cannot be imported \(ZeroDivisionError: division by zero\)"),
        ("Mine = 5", "mine.py:Mine: Mine must be a subclass of mpies.solvers.base.Solver, but is 5"),
        (MINE.replace("Mine(", "Other("), "mine.py has no Mine; it has Other, RightExternal$"),
        (MINE.replace("    Options = RightOptions\n", ""), "must be a complete solver, but lacks Options, a subclass"),
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
