"""Recipes that were recorded come out again."""

from mpies.runs.metrics import read_metrics
import shutil
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from mpies.cli import main
from mpies.config.loading import load_config
from mpies.views.curves import read_curves
from mpies.views.plots import draw_return
from mpies.tools.reproduce import compare, read_published, read_record

HOME = Path(__file__).resolve().parents[2]


@pytest.fixture
def reproduce(tmp_path, monkeypatch):
    monkeypatch.chdir(HOME)

    def run(*arguments):
        return CliRunner().invoke(main, ["reproduce", *arguments, "--out", str(tmp_path / "run")])

    return run


@pytest.mark.parametrize("recipe", ["cartpole", "rastrigin"])
def test_a_recorded_recipe_is_reproduced(recipe, reproduce, tmp_path):
    ended = reproduce(recipe)
    assert ended.exit_code == 0, ended.output
    assert ended.output.rstrip().endswith("15% allowed: reproduced")
    assert len(read_metrics(tmp_path / "run")) == len(read_metrics(HOME / "results" / recipe))


def test_a_recipe_that_nobody_recorded_is_a_users_mistake(reproduce):
    ended = reproduce("tetris")
    assert ended.exit_code == 2 and ended.output.count("\n") == 1
    assert "recorded recipes here: " in ended.output and " cartpole, " in ended.output


def test_curves_are_compared_by_digest_and_by_what_they_reach():
    def rows(returns, digests):
        return [{"return_mean": str(mean), "digest": digest} for mean, digest in zip(returns, digests, strict=True)]

    old = rows([0, 5, 10, 10], "abcd")
    assert compare(old, old).difference == 0 and compare(old, old).same == 4
    found = compare(old, rows([0, 5, 6], "abx"))
    assert (found.generations, found.same) == (3, 2)
    assert found.difference == pytest.approx(4 / 3 / 10)


@pytest.mark.parametrize("name", sorted(path.parent.name for path in HOME.glob("results/*/published.yaml")))
def test_what_others_published_is_drawn_beside(name, tmp_path, monkeypatch):
    monkeypatch.chdir(HOME)
    shutil.copy(HOME / "results" / name / "metrics.csv", tmp_path)
    config = load_config(HOME / "configs" / f"{name}.yaml", read_record(name)["overrides"])
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    beside = read_published(name)
    for _, points in beside:
        assert points == sorted(points)
    (legend,) = draw_return(read_curves(tmp_path), "steps", beside=beside).legends
    assert {whose for whose, _ in beside} < {text.get_text() for text in legend.get_texts()}
