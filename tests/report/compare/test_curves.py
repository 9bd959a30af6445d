"""Curves: what is read from a run directory, also while it grows."""

import numpy as np
import pytest

from mpies.core.errors import RunError
from mpies.report.compare.curves import NEEDED, read_curves
from mpies.runs.reader import RunView
from tests.report.web.served_runs import append, line
from tests.support import assert_refused, invoke


def test_columns_are_read_with_gaps_where_nothing_was_evaluated(run_folder, two_runs):
    curves = read_curves(run_folder / "group/long")
    assert len(curves) == 2000 and (curves.name, curves.target, curves.reason) == ("long", 200, "")
    assert np.flatnonzero(curves.is_evaluated)[:2].tolist() == [4, 9]  # every fifth generation
    assert curves.interval[4] == pytest.approx(1.96 * 20 / np.sqrt(100)) and np.isnan(curves.interval[3])
    assert curves["return_min"][:2].tolist() == [-4, -3]
    trained = read_curves(two_runs / "one-seed-1")
    assert "numpy" in trained.versions and "versions" not in trained.config
    assert trained.title == "CartPole-v1, openai_es, seed 1"


def test_a_view_reads_what_was_added_to_a_run_also_why_it_has_ended_and_no_versions(run_folder):
    run = run_folder / "first"
    view = RunView(run)
    before = read_curves(view)
    append(run / "metrics.csv", line(4))
    append(run / "config.yaml", "versions:\n")
    append(run / "finished.yaml", "reason: solved\n")
    after = read_curves(view)
    assert (len(before), before.reason) == (3, "")  # what was read before did not change
    assert (len(after), after.reason, after.versions, after.machines) == (4, "solved", {}, ())


BAD_CONFIGS = "model: resnet\n", "environment: {id: CartPole-v1}\nversions:\n", "environment: [1]\nsolver: 2\n"


@pytest.mark.parametrize(
    ("file", "lacks", "content"),
    [
        *(("config.yaml", "sections that every run has", content) for content in BAD_CONFIGS),
        *(("metrics.csv", f"{name}, which every run has", "") for name in NEEDED[1:]),
    ],
)
def test_a_config_or_metrics_that_are_damaged_or_of_another_program_are_refused(file, lacks, content, run_folder):
    path = run_folder / "first" / file
    name = lacks.partition(",")[0]
    path.write_text(content or path.read_text().replace(f",{name},", f",my_{name},"))
    for command in ("plot", "report", "compare"):
        ended = invoke(command, run_folder / "first")
        assert_refused(ended, f"{file}: lacks {lacks}; give the directory of a run")


def test_what_is_no_run_or_has_no_generation_is_refused(run_folder, tmp_path):
    (run_folder / "empty").mkdir()
    (run_folder / "first/metrics.csv").write_text("epoch,loss\n1,0.5\n")  # of another program
    ended = invoke("compare", run_folder / "first", run_folder / "group", "--out", tmp_path / "out")
    assert_refused(ended, "has no generation yet")
    (run_folder / "group/long/metrics.csv").unlink()
    for path, words in (
        ("", r"config\.yaml: is absent or damaged; give the directory of a run, such as /.*/"),
        ("first/config.yaml", r"first/config\.yaml: is a file, not a run; give the directory of a run$"),
        ("empty", r"config\.yaml: is absent or damaged; give the directory of a run$"),
        ("first", "has no generation yet"),
        ("group/long", "has no generation yet"),
    ):
        with pytest.raises(RunError, match=words):
            read_curves(run_folder / path)
