"""Recorded recipes are reproduced, and compared with their records."""

import shutil
from pathlib import Path

import pytest
import yaml

from mpies.config.loading import load_config
from mpies.runs.metrics import read_metrics
from mpies.tools import reproduce
from mpies.tools.reproduce import Comparison, Reproduction, compare, read_published, read_record
from mpies.views.curves import read_curves
from mpies.views.plots import draw_return
from tests.support import HOME, assert_refused, invoke


@pytest.fixture(autouse=True)
def checkout(monkeypatch):
    monkeypatch.chdir(HOME)


@pytest.mark.parametrize("recipe", ["cartpole", "rastrigin"])
def test_a_recorded_recipe_is_reproduced(recipe, tmp_path):
    outcome = invoke("reproduce", recipe, "--out", tmp_path / "run")
    assert outcome.code == 0, outcome.stderr
    assert outcome.stdout.rstrip().endswith("15% allowed: reproduced")
    assert len(read_metrics(tmp_path / "run")) == len(read_metrics(HOME / "results" / recipe))


def test_a_recipe_that_nobody_recorded_is_a_users_mistake():
    assert_refused(invoke("reproduce", "tetris"), "tetris has no record; recorded recipes: ", " cartpole, ")


def test_a_recipe_is_trained_as_it_was_recorded_but_for_no_longer(monkeypatch):
    trained = []
    monkeypatch.setattr(reproduce, "train", lambda ranks, arguments: trained.append((ranks, arguments)))
    record = {**read_record("cartpole"), "overrides": ["seed=7"], "generation": 12}
    for generations in (None, 5, 100):
        reproduce.train_again("cartpole-fast", record, Path("runs/x"), 2, generations)
    arguments = [str(reproduce.recipe_of("cartpole")), "--out", "runs/x", "seed=7"]
    assert trained == [(2, [*arguments, f"stop.generations={limit}"]) for limit in (12, 5, 12)]


def test_curves_are_compared_by_digest_and_by_what_they_reach():
    def rows(returns, digests):
        return [{"return_mean": str(mean), "digest": digest} for mean, digest in zip(returns, digests, strict=True)]

    old = rows([0, 5, 10, 10], "abcd")
    assert compare(old, old) == Comparison(4, 4, 0.0)
    comparison = compare(old, rows([0, 5, 6], "abx"))
    assert (comparison.generations, comparison.same) == (3, 2)
    assert comparison.difference == pytest.approx(4 / 3 / 10)
    assert compare(old, rows([0, "", 10, 10], "axcd")) == Comparison(4, 1, 0.0)  # a generation without a return


def test_a_curve_within_the_tolerance_is_reproduced():
    good, bad = (Reproduction("pole", Comparison(9, 3, difference), 0.15) for difference in (0.15, 0.151))
    assert good.is_reproduced and not bad.is_reproduced
    assert str(good) == (
        "pole: 9 generations, the first 3 with the same bits; curves differ by 15.0% of their range, "
        "15% allowed: reproduced"
    )
    assert str(bad).endswith("curves differ by 15.1% of their range, 15% allowed: NOT reproduced")
    assert "9 generations, all with" in str(Reproduction("pole", Comparison(9, 9, 0.0), 0.15))


@pytest.mark.parametrize("name", sorted(path.parent.name for path in HOME.glob("results/*/published.yaml")))
def test_what_others_published_is_drawn_beside(name, tmp_path):
    shutil.copy(HOME / "results" / name / "metrics.csv", tmp_path)
    config = load_config(HOME / "configs" / f"{name}.yaml", read_record(name)["overrides"])
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    beside = read_published(name)
    for _, points in beside:
        assert points == sorted(points)
    (legend,) = draw_return(read_curves(tmp_path), "steps", beside=beside).legends
    assert beside and {title for title, _ in beside} < {text.get_text() for text in legend.get_texts()}
