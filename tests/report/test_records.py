"""What was recorded: the files agree with each other, and the band of several curves says what may differ."""

import math

import numpy as np
import pytest

from mpies.config.loading import differences, load_config, resolved
from mpies.report import records
from mpies.report.compare.statistics import bootstrap_interval, interquartile_mean
from mpies.report.records import (
    RESULTS,
    Band,
    curve_of,
    describe_return,
    format_result,
    is_finished,
    is_reached,
    list_recipes,
    metrics_file,
    read_record,
    read_recorded_metrics,
    recipe_of,
    shorten,
)
from mpies.runs.formats.metrics import count_core_seconds
from mpies.runs.formats.policy_file import load_policy
from tests.support import HOME, assert_refused, invoke, load_script

DOCS = load_script("docs/build_recipes.py")
NAMES = sorted(path.name for path in (HOME / "results").iterdir())


def seed(number, mean, ended="solved", reached=True, seconds=7200.0):
    evaluation = mean if mean is None else {"policy_of_generation": 3, "episodes": 9, "mean": mean, "interval_95": 0.25}
    entry = {"seed": number, "ended": ended, "reached": reached, "generation": 4, "steps": 40}
    return entry | {"seconds": seconds, "ranks": 2, "core_seconds": 2 * seconds, "evaluation": evaluation}


def record_of(*seeds, mark=5.0, over=None):
    return {"mark": mark, "tolerance": 0.1, "over_seeds": over, "seeds": list(seeds), "versions": {}}


def line(*returns):
    """A curve whose generations are 10 steps each."""
    return np.array([[10.0 * k, value] for k, value in enumerate(returns, 1)])


@pytest.mark.parametrize("name", NAMES)
def test_a_record_agrees_with_its_files(name):
    record = read_record(name)
    numbers = [one["seed"] for one in record["seeds"]]
    assert len({*numbers}) == len(numbers) > 0
    files = [metrics_file(name, record, number) for number in numbers]
    assert files[0] == RESULTS / name / "metrics.csv" and {*files} == {*(RESULTS / name).glob("metrics*.csv")}
    for one in record["seeds"]:
        rows = read_recorded_metrics(name, record, one["seed"])
        last = rows[-1]
        assert (int(last["generation"]), int(last["steps"])) == (one["generation"], one["steps"])
        assert float(last["seconds"]) == pytest.approx(one["seconds"], abs=0.051) and int(last["ranks"]) == one["ranks"]
        assert one["core_seconds"] == pytest.approx(count_core_seconds(rows), abs=0.1)
        mark, evaluation = record["mark"], one["evaluation"]
        assert one["reached"] == (mark is not None and evaluation is not None and evaluation["mean"] >= mark)
    band = Band.of(read_recorded_metrics(name, record, number) for number in numbers)
    assert record["tolerance"] == pytest.approx(load_script("benchmarks/record.py").choose_tolerance(band), abs=1e-4)
    means = np.array([one["evaluation"]["mean"] for one in record["seeds"] if one["evaluation"]])
    assert (record["over_seeds"] is not None) == (len(means) > 1)
    if over := record["over_seeds"]:
        assert over["interquartile_mean"] == pytest.approx(interquartile_mean(means).item(), abs=1e-3)
        assert over["interval_95"] == pytest.approx([end.item() for end in bootstrap_interval(means)], abs=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_what_was_recorded(name):
    """The policy of a record has the config of its run."""
    assert recipe_of(name).stem == name
    if (RESULTS / name / "policy.h5").exists():
        config = load_policy(RESULTS / name / "policy.h5").config
        assert config.seed == read_record(name)["seeds"][0]["seed"]
        held, recorded = resolved(load_config(name)) | {"seed": config.seed}, resolved(config)
        if first := held["policy"].get("init_from"):  # older runs have the path of the recipe's policy
            given = recorded["policy"]["init_from"]
            assert given == first or given.endswith(f"/results/{first}/policy.h5")
            recorded["policy"]["init_from"] = first
        if recorded["environment"]["backend"] == "auto":  # older runs have what it meant in their versions
            recorded["environment"]["backend"] = "envpool" if held["environment"]["backend"] == "envpool" else "auto"
        assert differences(recorded, held) == []


def test_points_between_the_lowest_and_the_highest_curve_are_inside():
    band = Band([line(0, 10, 20), line(4, 6, 8)])
    assert band.spread == 20 and Band([line(3, 3)]).spread == 1
    for curve, distance in (
        (line(2, 6, 20), 0),
        (line(5, 4, 26), (1 + 2 + 6) / 3),
        (np.array([[15.0, 5.0], [25.0, 16.0]]), (0 + 1) / 2),  # interpolated
        (np.array([[99.0, 21.0]]), 1),  # a curve that has ended keeps its last return
    ):
        assert band.measure_distance(curve) == pytest.approx(distance)
    assert math.isnan(band.measure_distance(np.zeros((0, 2))))
    rows = [{"steps": "10", "return_mean": "1.5"}, {"steps": "20", "return_mean": ""}]
    rows += [{"steps": "30", "return_mean": "nan"}]
    assert curve_of(rows).tolist() == [[10, 1.5]]  # generations without a return are no points
    assert len(Band.of([rows, rows[1:]]).curves) == 1


def test_a_record_of_one_seed_is_described_by_its_episodes():
    record = record_of(seed(1, 6.04))
    assert describe_return(record) == "6.0 ± 0.2" and DOCS.describe_seeds(record) == "1 of 1 reached"
    assert is_reached(record) and is_finished(record)
    assert describe_return(record_of(seed(1, -0.001))).startswith("0.0 ")
    assert [DOCS.describe_core_hours(hours) for hours in (4.04, 0.009, 0.0106)] == ["4", "< 0.01", "0.011"]
    texts = ["2.5 after 7 hours (Them 2018).", "A pole: small.", "ARS; fast", "CMA.", "one, two"]
    assert [shorten(text) for text in texts] == ["2.5 after 7 hours", "A pole", "ARS", "CMA", "one"]


def test_failures_count_among_the_seeds():
    seeds = seed(1, 6.0), seed(2, 1.0, "generations", False), seed(3, None, records.CUT_SHORT, False)
    for mean, low, high, text in (
        (999.94, -2.0, 1000.0, "999.9 (-2.0 to 1,000.0)"),
        (-0.04, -0.06, 0.04, "0.0 (-0.1 to 0.0)"),
        (1234.56, -2.0, 4000.0, "1,235 (-2 to 4,000)"),
    ):
        record = record_of(*seeds, over={"interquartile_mean": mean, "interval_95": [low, high]})
        assert describe_return(record) == text and DOCS.describe_seeds(record) == "1 of 3 reached"
    assert is_reached(record) and not is_reached(record | {"mark": 2000.0})
    assert not is_reached(record | {"mark": None}) and DOCS.describe_seeds(record | {"mark": None}) == "3 seeds"
    unfinished, reached = (
        record_of(seed(1, 1.0, "seconds", False), seeds[2]),
        record_of(seed(1, 6.0, records.CUT_SHORT)),
    )
    assert not is_finished(unfinished) and DOCS.describe_seeds(unfinished) == "2 cut short"
    assert not is_finished(reached) and DOCS.describe_seeds(reached) == "1 of 1 reached"
    assert format_result(unfinished) == "not run to the end" and format_result(reached) == "6.0 ± 0.2"
    assert describe_return(record_of(seeds[2])) == "no policy"


def test_the_list_has_every_recipe_on_a_line_of_a_terminal():
    outcome = invoke("recipes", code=0)
    assert outcome.stdout.rstrip() == list_recipes()
    lines = {row.split()[0]: row for row in outcome.stdout.splitlines()}
    assert {*records.find_recipes()} == {*lines} - {"recipe"} and max(map(len, lines.values())) <= 130
    assert lines["humanoid"].split("  ")[-1].strip() == "not run"
    assert describe_return(read_record("swimmer")) in lines["swimmer"]
    assert "not run to the end" in lines["pong-small"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tetris", ["tetris has no record; recorded recipes: ", " cartpole, "]),
        ("humanoid", ["humanoid has no record; the nearest is humanoid_linear"]),
        ("cartpol", ["cartpol has no record; the nearest are cartpole, cartpole_swingup"]),
    ],
)
def test_a_recipe_that_nobody_recorded_is_a_users_mistake(name, words):
    assert_refused(invoke("reproduce", name), *words)
