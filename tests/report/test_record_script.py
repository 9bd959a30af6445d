"""benchmarks/record.py records all seeds of a recipe: failures too, none left out, no other config."""

import shutil

import pytest
import yaml

from mpies.config import recipes
from mpies.core.errors import ConfigError
from mpies.report import records
from mpies.report.records import read_record
from tests.support import CARTPOLE, load_script

HEADING = "# A pole.\n# Policy: 8.\n# Solver: ES.\n# Published: none.\n# Budget: none.\n"


@pytest.fixture(scope="module")
def runs(trained, tmp_path_factory):
    """Runs of a small recipe with three seeds, and one of another config."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (1, 2, 3):
        shutil.copytree(trained(f"seed: {seed}\n{CARTPOLE}"), folder / f"pole-seed-{seed}")
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
    record = read_record("pole")
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
    before = read_record("pole")
    assert (before["over_seeds"], before["tolerance"]) == (None, 0.15)
    script.record_runs([runs[0] / "pole-seed-1", runs[0] / "pole-seed-3"], "pole", episodes=2)
    record = read_record("pole")
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
    record = read_record("pole")
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
