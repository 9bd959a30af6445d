"""Plots of the return: their files, their axes, and what fits into them."""

import sys

import imageio.v3
import numpy as np
import pytest
from matplotlib.figure import Figure

from mpies.core.errors import RunError
from mpies.report.compare.run_groups import group_runs
from mpies.report.compare.statistics import draw_comparison
from mpies.report.figures import STYLE, draw_in_background, draw_return, render, set_axis, write_file
from tests.report.conftest import CONFIG
from tests.support import LEFT_OPEN, assert_refused, invoke, wait_for, write_program

FILES = ["reward_vs_time.png", "reward_vs_iteration.png", "reward_vs_steps.png"]


def test_the_command_draws_in_the_width_that_was_asked_for_and_leaves_out_what_has_no_generation(run, tmp_path):
    fresh, lacking = tmp_path / "fresh", tmp_path / "absent"
    fresh.mkdir()
    (fresh / "config.yaml").write_text((run / "config.yaml").read_text())
    ended = invoke("plot", fresh, run, lacking, "--width", "4", code=0)
    assert [line.rpartition("/")[2] for line in ended.stdout.split()] == FILES
    assert imageio.v3.imread(run / FILES[0]).shape[:2] == (384, 480) and not list(run.glob(".*.tmp"))
    words = [f"left out: {fresh}: has no generation yet; ", f"left out: {lacking}/config.yaml: is absent or damaged; "]
    assert all(line.startswith(word) for line, word in zip(ended.stderr.splitlines(), words, strict=True))
    assert_refused(invoke("plot", fresh, lacking), str(fresh))
    assert_refused(invoke("plot", tmp_path, "--trajectory"), "; give the directory of a run")
    cure = "it must be a file in a folder that you may"
    with pytest.raises(RunError, match=rf"absent/x\.png: cannot be written \(No such file or directory\); {cure}"):
        write_file(lacking / "x.png", b"")


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
def test_the_same_curves_give_the_same_bytes(make_curves, kind):
    curves = make_curves([None, 3.0, 4.0], target=5.0)
    first, second = (render(draw_return(curves, "steps"), kind) for _ in range(2))
    assert first == second and b"/Type3" not in first and STYLE.exists()  # fonts of a PDF are embedded as TrueType
    assert first != render(draw_return(make_curves([None, 3.0, 4.5], target=5.0), "steps"), kind)


def test_times_are_shown_in_a_unit_that_fits_and_steps_in_thousands_and_millions(make_curves):
    axes = Figure().subplots()
    for seconds, size, unit in ((180.0, 1, "s"), (181.0, 60, "min"), (7201.0, 3600, "h")):
        assert set_axis(axes, "time", [np.array([1.0]), np.array([seconds])]) == size
        assert axes.get_xlabel() == f"training time ({unit})"
    assert set_axis(axes, "steps", [np.array([1e9])]) == 1 and axes.get_xlabel() == "environment steps"
    curves = make_curves([None, 1.0])
    curves["steps"][:] = 1e6, 3e6
    assert draw_return(curves, "steps").axes[0].xaxis.get_major_formatter()(2e6) == "2 M"


def test_an_axis_is_logarithmic_by_itself_only_if_all_returns_have_one_sign(make_curves):
    for low, mean, high, target, wanted, scale in (
        ([0.5, 0.5], [2, 600], [3, 700], None, "auto", "symlog"),
        ([-3, -3], [2, 600], [3, 700], None, "auto", "linear"),
        ([-3, -3], [2, 600], [3, 700], None, "log", "symlog"),
        ([0.5, 0.5], [2, 600], [3, 700], -3.0, "auto", "linear"),  # the target has the other sign
        ([-999, -5], [-990, -2], [-900, -1], -0.001, "auto", "symlog"),  # costs
        ([-999, -5], [-990, -2], [-900, -1], -0.001, "linear", "linear"),
    ):
        curves = make_curves([None, None], target=target)
        for name, values in (("return_min", low), ("return_mean", mean), ("return_max", high)):
            curves.columns[name] = np.array(values, float)
        (axes,) = draw_return(curves, "steps", scale=wanted).axes
        lowest, highest = axes.get_ylim()
        assert axes.get_yscale() == scale and not axes.yaxis_inverted()
        targets = [target] if target else []
        assert [line.get_ydata()[0] for line in axes.lines if "target" in str(line.get_label())] == targets
        assert lowest < min([*mean, *targets]) and highest > max([*mean, *targets])


@pytest.mark.filterwarnings("error", *LEFT_OPEN)
def test_a_target_of_0_has_a_place_on_a_logarithmic_axis(make_curves):
    costs = make_curves([-900.0, -1e-3] * 150, target=0.0)
    for name in ("return_mean", "return_min", "return_max"):
        costs.columns[name] = -np.abs(costs["eval_mean"])
    for figure in (draw_return(costs, "steps"), draw_comparison(group_runs([costs]), "steps")):
        render(figure)
        (axes,) = figure.axes
        assert axes.get_yscale() == "symlog" and axes.get_ylim()[1] > 0
        assert [line.get_ydata()[0] for line in axes.lines if "target" in str(line.get_label())] == [0]


def test_dollar_signs_of_names_are_drawn_as_they_are(make_curves):
    name = "a $x\\y$.py:Room$_"
    curves = make_curves([1.0, 2.0], environment={"id": name})
    assert f"<!-- {name}, snes, seed 1 -->" in render(draw_return(curves, "steps"), "svg").decode()
    other = make_curves([2.0, 1.0], environment={"id": name}, label="$")
    svg = render(draw_comparison(group_runs([curves, other]), "steps"), "svg").decode()
    assert f"<!-- {name} -->" in svg and "<!-- label $ (1 seed) -->" in svg


def test_members_evaluations_and_target_are_drawn(make_curves):
    figure = draw_return(make_curves([None, 3.0, 4.0], target=5.0), "iteration")
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert sorted(names) == ["evaluation, 95 % interval", "members, mean", "members, min to max", "target 5"]
    (axes,) = figure.axes
    mean = next(drawn for drawn in axes.lines if drawn.get_label() == "members, mean")
    assert mean.get_xydata().tolist() == [[1, 1], [2, 2], [3, 3]]
    (bars,) = axes.containers
    (dots, _, (intervals,)) = bars
    assert dots.get_xydata().tolist() == [[2, 3], [3, 4]]
    low, high = intervals.get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((3 - 1.96, 3 + 1.96))  # a standard deviation of 2 over 4 episodes


def test_one_bad_member_does_not_flatten_the_curves_but_a_far_target_is_shown(make_curves):
    curves = make_curves([None] * 39 + [20.0], target=300.0)
    curves["return_min"][7] = -90_000
    low, high = draw_return(curves, "steps").axes[0].get_ylim()
    assert -50 < low < 0 and 300 < high < 330


def test_pictures_are_drawn_after_training_unless_the_environment_forbids_it(run_mpies, two_runs, here, monkeypatch):
    (here / "config.yaml").write_text(CONFIG)
    monkeypatch.setenv("MPIES_PICTURES", "1")
    run_mpies(0, "train", "config.yaml", "--out", "run", "--ranks", "2", code=0)
    for path in (here / "run" / name for name in FILES):
        wait_for(path.exists)
        assert imageio.v3.imread(path).shape[:2] == (504, 960)
    assert not list((two_runs / "one-seed-1").glob("reward_vs_*.png"))  # trained with MPIES_PICTURES=0


@pytest.fixture
def draw_with(run, monkeypatch, tmp_path):
    """Function of lines of a script: draw `run` with it in place of Python.  Returns what it wrote into `notes`."""

    def draw(lines):
        notes, ended = tmp_path / "notes", tmp_path / "ended"
        script = write_program(tmp_path / "script", f"({lines}) > {notes}\nmv {notes} {ended}")
        monkeypatch.setenv("MPIES_PICTURES", "1")
        monkeypatch.setattr(sys, "executable", script)
        draw_in_background(run)
        wait_for(ended.exists)
        return ended.read_text()

    return draw


def test_a_run_deleted_at_once_stays_deleted_and_a_process_that_cannot_start_is_no_error(run, draw_with, monkeypatch):
    assert draw_with(f'rm -r {run}; {sys.executable} "$@"; echo $?') == "2\n" and not run.exists()
    monkeypatch.setattr(sys, "executable", "/absent/python")
    draw_in_background(run)


def test_the_drawing_process_outlives_the_ranks_and_holds_none_of_their_streams(draw_with, monkeypatch):
    for name in ("OMPI_COMM_WORLD_RANK", "MPIES_JOB"):
        monkeypatch.setenv(name, "1")
    notes = draw_with("ps -o sid= $$; echo $$; readlink /proc/$$/fd/[012]; env")
    session, process, *streams_and_variables = notes.split("\n")
    assert session.strip() == process and streams_and_variables[:3] == ["/dev/null"] * 3
    assert not [line for line in streams_and_variables if line.startswith(("OMPI_COMM", "MPIES_JOB"))]
