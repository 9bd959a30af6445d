"""Curves: what is read from a run directory, also while it grows."""

import numpy as np
import pytest

from mpies.errors import RunError
from mpies.runs.reader import RunView
from mpies.views.curves import read_curves
from tests.views.web.served_runs import line


def test_columns_are_read_with_gaps_where_nothing_was_evaluated(run_folder):
    curves = read_curves(run_folder / "group/long")
    assert len(curves) == 2000 and (curves.name, curves.target, curves.reason) == ("long", 200, "")
    assert np.flatnonzero(curves.is_evaluated)[:2].tolist() == [4, 9]  # every fifth generation
    assert curves.interval[4] == pytest.approx(1.96 * 20 / np.sqrt(100)) and np.isnan(curves.interval[3])
    assert curves["return_min"][:2].tolist() == [-4, -3]


def test_a_run_that_has_ended_tells_why(run_folder):
    (run_folder / "first" / "finished.yaml").write_text("{reason: solved, generation: 3, steps: 2400}")
    assert read_curves(run_folder / "first").reason == "solved"


def test_a_view_reads_the_lines_that_were_added(run_folder):
    view = RunView(run_folder / "first")
    before = read_curves(view)
    with open(run_folder / "first" / "metrics.csv", "a") as file:
        file.write(line(4))
    after = read_curves(view)
    assert (len(before), len(after)) == (3, 4)  # and what was read before did not change


def test_what_is_no_run_is_refused(run_folder, tmp_path):
    with pytest.raises(RunError, match=r"config\.yaml: cannot be read; is .* a run\?"):
        read_curves(tmp_path)
    (run_folder / "first" / "metrics.csv").unlink()
    with pytest.raises(RunError, match="has no generation yet"):
        read_curves(run_folder / "first")


def test_the_versions_are_no_part_of_the_config(trained):
    curves = read_curves(trained / "one-seed-1")
    assert "numpy" in curves.versions and "versions" not in curves.config
    assert curves.title == "CartPole-v1, openai_es, seed 1"
