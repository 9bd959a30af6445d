"""Curves: what is read from a run directory, also while it grows."""

import numpy as np
import pytest

from mpies.core.errors import RunError
from mpies.report.compare.curves import NEEDED, read_curves
from mpies.runs.reader import RunView
from tests.report.web.served_runs import line
from tests.support import assert_refused, invoke


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


@pytest.mark.parametrize(
    "config", ["model: resnet\n", "environment: {id: CartPole-v1}\nversions:\n", "environment: [1]\nsolver: 2\n"]
)
def test_a_config_that_is_damaged_or_of_another_program_is_refused(config, run_folder):
    run = run_folder / "first"
    (run / "config.yaml").write_text(config)
    for command in ("plot", "report", "compare"):
        assert_refused(
            invoke(command, run), "config.yaml: lacks sections that every run has; give the directory of a run"
        )


def test_a_run_without_versions_is_read(run_folder):
    with open(run_folder / "first/config.yaml", "a") as file:
        file.write("versions:\n")
    curves = read_curves(run_folder / "first")
    assert (len(curves), curves.versions, curves.machines) == (3, {}, ())


def test_the_metrics_of_another_program_are_no_generations(run_folder, tmp_path):
    (run_folder / "first/metrics.csv").write_text("epoch,loss\n1,0.5\n")
    with pytest.raises(RunError, match="has no generation yet"):
        read_curves(run_folder / "first")
    ended = invoke("compare", run_folder / "first", run_folder / "group", "--out", tmp_path / "out")
    assert_refused(ended, "has no generation yet")


@pytest.mark.parametrize("name", NEEDED[1:])
def test_metrics_without_a_column_that_every_run_has_are_refused(name, run_folder):
    file = run_folder / "first/metrics.csv"
    file.write_text(file.read_text().replace(f",{name},", f",my_{name},"))
    for command in ("plot", "report", "compare"):
        assert_refused(
            invoke(command, run_folder / "first"),
            f"metrics.csv: lacks {name}, which every run has; give the directory of a run",
        )


def test_what_is_no_run_is_refused(run_folder, tmp_path):
    with pytest.raises(
        RunError, match=r"config\.yaml: is absent or damaged; give the directory of a run, such as /.*/"
    ):
        read_curves(run_folder)
    with pytest.raises(RunError, match=r"first/config\.yaml: is a file, not a run; give the directory of a run$"):
        read_curves(run_folder / "first/config.yaml")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=r"config\.yaml: is absent or damaged; give the directory of a run$"):
        read_curves(tmp_path / "empty")
    (run_folder / "first" / "metrics.csv").unlink()
    with pytest.raises(RunError, match="has no generation yet"):
        read_curves(run_folder / "first")


def test_the_versions_are_no_part_of_the_config(two_runs):
    curves = read_curves(two_runs / "one-seed-1")
    assert "numpy" in curves.versions and "versions" not in curves.config
    assert curves.title == "CartPole-v1, openai_es, seed 1"
