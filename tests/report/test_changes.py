"""Losses, restarts and growth of a run: where they are found, and how the plots and the report show them."""

import numpy as np
import pytest

from mpies.report.compare.curves import FEWER, MORE, RESTART
from mpies.report.document import make_report
from mpies.report.figures import draw_return

RANKS = [6, 6, 4, 4, 4, 6, 6]
NODES = [3, 3, 2, 2, 2, 3, 3]
STARTS = [1, 1, 2, 2, 3, 4, 4]


@pytest.fixture
def curves(make_curves):
    made = make_curves([None] * len(RANKS))
    made.columns.update(ranks=np.array(RANKS, float), nodes=np.array(NODES, float), starts=np.array(STARTS, float))
    return made


def test_changes_are_told_from_ranks_and_starts(curves):
    assert {name: rows.tolist() for name, rows in curves.changes.items()} == {FEWER: [2], RESTART: [4], MORE: [5]}


def test_a_run_without_the_newer_columns_shows_its_losses(curves):
    del curves.columns["starts"], curves.columns["nodes"]
    assert {name: rows.tolist() for name, rows in curves.changes.items()} == {FEWER: [2], RESTART: [], MORE: [5]}
    assert "<th>nodes" not in make_report(curves)


def test_the_plot_marks_each_change_at_its_generation(curves):
    figure = draw_return(curves, "iteration")
    marks = {drawn.get_label(): drawn.get_xdata().tolist() for drawn in figure.axes[0].lines}
    assert (marks[FEWER], marks[RESTART], marks[MORE]) == ([3], [5], [6])


def test_the_report_names_the_numbers_of_ranks(curves):
    text = make_report(curves)
    assert "<th>ranks</th><td>4, 6<" in text and "<th>nodes</th><td>2, 3<" in text


def test_a_run_that_went_on_undisturbed_has_no_marks(make_curves):
    curves = make_curves([None, 1.0])
    assert not any(len(rows) for rows in curves.changes.values())
