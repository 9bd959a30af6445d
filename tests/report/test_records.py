"""What was recorded: the files agree with each other, and the band of several curves says what may differ.

benchmarks/record.py records all seeds of a recipe: failures too, none left out, no other config.
"""

import math
import shutil

import numpy as np
import pytest
import yaml

from mpies.config import recipes
from mpies.config.loading import differences, load_config, resolved
from mpies.core.errors import ConfigError
from mpies.report import records
from mpies.report.compare.statistics import bootstrap_interval, interquartile_mean
from mpies.runs.formats.metrics import count_core_seconds
from mpies.runs.formats.policy_file import load_policy
from tests.support import CARTPOLE, HOME, assert_refused, invoke, load_script

DOCS = load_script("docs/build_recipes.py")
HEADING = "# A pole.\n# Policy: 8.\n# Solver: ES.\n# Published: none.\n# Budget: none.\n"
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
    record = records.read_record(name)
    numbers = [one["seed"] for one in record["seeds"]]
    assert len({*numbers}) == len(numbers) > 0
    files = [records.metrics_file(name, record, number) for number in numbers]
    assert files[0] == records.RESULTS / name / "metrics.csv" and {*files} == {*files[0].parent.glob("metrics*.csv")}
    for one in record["seeds"]:
        rows = records.read_recorded_metrics(name, record, one["seed"])
        last = rows[-1]
        assert (int(last["generation"]), int(last["steps"])) == (one["generation"], one["steps"])
        assert float(last["seconds"]) == pytest.approx(one["seconds"], abs=0.051) and int(last["ranks"]) == one["ranks"]
        assert one["core_seconds"] == pytest.approx(count_core_seconds(rows), abs=0.1)
        mark, evaluation = record["mark"], one["evaluation"]
        assert one["reached"] == (mark is not None and evaluation is not None and evaluation["mean"] >= mark)
    band = records.Band.of(records.read_recorded_metrics(name, record, number) for number in numbers)
    assert record["tolerance"] == pytest.approx(load_script("benchmarks/record.py").choose_tolerance(band), abs=1e-4)
    means = np.array([one["evaluation"]["mean"] for one in record["seeds"] if one["evaluation"]])
    assert (record["over_seeds"] is not None) == (len(means) > 1)
    if over := record["over_seeds"]:
        assert over["interquartile_mean"] == pytest.approx(interquartile_mean(means).item(), abs=1e-3)
        assert over["interval_95"] == pytest.approx([end.item() for end in bootstrap_interval(means)], abs=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_what_was_recorded(name):
    """The policy of a record has the config of its run."""
    assert records.recipe_of(name).stem == name
    if (policy := records.RESULTS / name / "policy.h5").exists():
        config = load_policy(policy).config
        assert config.seed == records.read_record(name)["seeds"][0]["seed"]
        held, recorded = resolved(load_config(name)) | {"seed": config.seed}, resolved(config)
        if first := held["policy"].get("init_from"):  # older runs have the path of the recipe's policy
            given = recorded["policy"]["init_from"]
            assert given == first or given.endswith(f"/results/{first}/policy.h5")
            recorded["policy"]["init_from"] = first
        if recorded["environment"]["backend"] == "auto":  # older runs have what it meant in their versions
            recorded["environment"]["backend"] = "envpool" if held["environment"]["backend"] == "envpool" else "auto"
        assert differences(recorded, held) == []


def test_points_between_the_lowest_and_the_highest_curve_are_inside():
    band = records.Band([line(0, 10, 20), line(4, 6, 8)])
    assert band.spread == 20 and records.Band([line(3, 3)]).spread == 1
    for curve, distance in (
        (line(2, 6, 20), 0),
        (line(5, 4, 26), (1 + 2 + 6) / 3),
        (np.array([[15.0, 5.0], [25.0, 16.0]]), (0 + 1) / 2),  # interpolated
        (np.array([[99.0, 21.0]]), 1),  # a curve that has ended keeps its last return
    ):
        assert band.measure_distance(curve) == pytest.approx(distance)
    assert math.isnan(band.measure_distance(np.zeros((0, 2))))
    rows = [{"steps": str(steps), "return_mean": mean} for steps, mean in ((10, "1.5"), (20, ""), (30, "nan"))]
    assert records.curve_of(rows).tolist() == [[10, 1.5]]  # generations without a return are no points
    assert len(records.Band.of([rows, rows[1:]]).curves) == 1


def test_a_record_of_one_seed_is_described_by_its_episodes():
    record = record_of(seed(1, 6.04))
    assert records.describe_return(record) == "6.0 ± 0.2" and DOCS.describe_seeds(record) == "1 of 1 reached"
    assert records.is_reached(record) and records.is_finished(record)
    assert records.describe_return(record_of(seed(1, -0.001))).startswith("0.0 ")
    assert [DOCS.describe_core_hours(hours) for hours in (4.04, 0.009, 0.0106)] == ["4", "< 0.01", "0.011"]
    texts = ["2.5 after 7 hours (Them 2018).", "A pole: small.", "ARS; fast", "CMA.", "one, two"]
    assert [records.shorten(text) for text in texts] == ["2.5 after 7 hours", "A pole", "ARS", "CMA", "one"]


def test_failures_count_among_the_seeds():
    seeds = seed(1, 6.0), seed(2, 1.0, "generations", False), seed(3, None, records.CUT_SHORT, False)
    for mean, low, high, text in (
        (999.94, -2.0, 1000.0, "999.9 (-2.0 to 1,000.0)"),
        (-0.04, -0.06, 0.04, "0.0 (-0.1 to 0.0)"),
        (1234.56, -2.0, 4000.0, "1,235 (-2 to 4,000)"),
    ):
        record = record_of(*seeds, over={"interquartile_mean": mean, "interval_95": [low, high]})
        assert records.describe_return(record) == text and DOCS.describe_seeds(record) == "1 of 3 reached"
    assert records.is_reached(record) and not records.is_reached(record | {"mark": 2000.0})
    assert not records.is_reached(record | {"mark": None}) and DOCS.describe_seeds(record | {"mark": None}) == "3 seeds"
    unfinished = record_of(seed(1, 1.0, "seconds", False), seeds[2])
    reached = record_of(seed(1, 6.0, records.CUT_SHORT))
    assert not records.is_finished(unfinished) and DOCS.describe_seeds(unfinished) == "2 cut short"
    assert not records.is_finished(reached) and DOCS.describe_seeds(reached) == "1 of 1 reached"
    assert records.format_result(unfinished) == "not run to the end" and records.format_result(reached) == "6.0 ± 0.2"
    assert records.describe_return(record_of(seeds[2])) == "no policy"


def test_the_list_has_every_recipe_on_a_line_of_a_terminal():
    outcome = invoke("recipes", code=0)
    assert outcome.stdout.rstrip() == records.list_recipes()
    lines = {row.split()[0]: row for row in outcome.stdout.splitlines()}
    assert {*records.find_recipes()} == {*lines} - {"recipe"} and max(map(len, lines.values())) <= 130
    assert lines["humanoid"].split("  ")[-1].strip() == "not run"
    assert records.describe_return(records.read_record("swimmer")) in lines["swimmer"]
    assert "not run to the end" in lines["pong-small"]


def test_a_recipe_that_nobody_recorded_is_a_users_mistake():
    for name, *words in (
        ("tetris", "tetris has no record; recorded recipes: ", " cartpole, "),
        ("humanoid", "humanoid has no record; the nearest is humanoid_linear"),
        ("cartpol", "cartpol has no record; the nearest are cartpole, cartpole_swingup"),
    ):
        assert_refused(invoke("reproduce", name), *words)


@pytest.fixture(scope="module")
def runs(trained, tmp_path_factory):
    """Runs of a small recipe with three seeds, and one of another config."""
    folder = tmp_path_factory.mktemp("runs")
    for number in (1, 2, 3):
        shutil.copytree(trained(f"seed: {number}\n{CARTPOLE}"), folder / f"pole-seed-{number}")
    return folder, trained(CARTPOLE.replace("sigma: 0.1", "sigma: 0.2"))


@pytest.fixture
def script(tmp_path, monkeypatch):
    """The script, with a recipe `pole` and a folder of results of its own."""
    module = load_script("benchmarks/record.py")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/pole.yaml").write_text(HEADING + CARTPOLE)
    monkeypatch.setattr(recipes, "RECIPES", tmp_path / "configs")
    for place in (records, module):
        monkeypatch.setattr(place, "RESULTS", tmp_path / "results")
    return module


def test_all_seeds_of_a_folder_are_recorded(script, runs, tmp_path):
    with pytest.raises(ConfigError, match=r"beside it is seed 3 \(.*pole-seed-3\), which would be left out"):
        script.record_runs([runs[0] / "pole-seed-1", runs[0] / "pole-seed-2"], "pole", episodes=2)
    assert not records.has_record("pole")
    script.record_runs([runs[0]], "pole", mark=0.0, episodes=4)
    record = records.read_record("pole")
    assert [seed["seed"] for seed in record["seeds"]] == [1, 2, 3] and all(seed["reached"] for seed in record["seeds"])
    low, high = record["over_seeds"]["interval_95"]
    assert low <= record["over_seeds"]["interquartile_mean"] <= high and record["tolerance"] >= 0.05
    files = {path.name for path in (tmp_path / "results/pole").iterdir()}
    assert files == {"metrics.csv", "metrics-2.csv", "metrics-3.csv", "policy.h5", "record.yaml", "return.png"}
    first = (tmp_path / "results/pole/metrics.csv").read_text()
    assert first == (runs[0] / "pole-seed-1/metrics.csv").read_text()


def test_a_seed_that_was_recorded_stays(script, runs, tmp_path):
    alone = shutil.copytree(runs[0] / "pole-seed-2", tmp_path / "alone/two")
    script.record_runs([alone], "pole", mark=1e9, episodes=2)
    before = records.read_record("pole")
    assert (before["over_seeds"], before["tolerance"]) == (None, 0.15)
    script.record_runs([runs[0] / "pole-seed-1", runs[0] / "pole-seed-3"], "pole", episodes=2)
    record = records.read_record("pole")
    assert [seed["seed"] for seed in record["seeds"]] == [2, 1, 3]
    assert record["seeds"][0] == before["seeds"][0] and record["mark"] == 1e9
    assert not any(seed["reached"] for seed in record["seeds"])
    assert (tmp_path / "results/pole/metrics.csv").read_bytes() == (alone / "metrics.csv").read_bytes()


def test_a_seed_that_failed_is_listed_and_versions_are_those_of_packages_that_all_runs_name(script, runs, tmp_path):
    some = shutil.copytree(runs[0], tmp_path / "some")
    for name in ("best.h5", "policy.h5", "finished.json"):
        (some / "pole-seed-3" / name).unlink(missing_ok=True)
    numpy = change_versions(some / "pole-seed-2", "gymnasium", another="1.0")["numpy"]
    script.record_runs([some], "pole", mark=0.0, episodes=2)
    record = records.read_record("pole")
    assert [seed["reached"] for seed in record["seeds"]] == [True, True, False]
    assert record["seeds"][2]["evaluation"] is None
    assert record["versions"].keys() & {"gymnasium", "another", "numpy"} == {"numpy"}
    assert record["versions"]["numpy"] == numpy
    with pytest.raises(ConfigError, match="two have the same seed"):
        script.record_runs([some, runs[0] / "pole-seed-1"], "pole")
    change_versions(some / "pole-seed-2", numpy="1.0")
    with pytest.raises(ConfigError, match="trained with different versions of packages"):
        script.record_runs([some], "pole", episodes=2)


def change_versions(run, without="", **versions):
    """Change the versions in the config of a run.  Returns them."""
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["versions"] |= versions
    config["versions"].pop(without, None)
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    return config["versions"]


def test_runs_of_another_config_are_refused(script, runs, tmp_path):
    with pytest.raises(ConfigError, match=r"run: is no run of pole; these keys differ: solver.sigma$"):
        script.record_runs([runs[1]], "pole")
    with pytest.raises(ConfigError, match="there is no recipe or variant of this name"):
        script.record_runs([runs[0]], "ball")
    cut = shutil.copytree(runs[0] / "pole-seed-1", tmp_path / "cut")
    config = yaml.safe_load((cut / "config.yaml").read_text())
    for key, wanted in (("seconds", []), ("generations", ["stop.generations"])):
        (cut / "config.yaml").write_text(yaml.safe_dump(config | {"stop": config["stop"] | {key: 50}}))
        assert script.find_differences(script.read_all_curves([cut])[0][0].config, "pole") == wanted
