"""Recorded recipes are reproduced, and compared with their records."""

import shutil
from pathlib import Path

import pytest
import yaml

from mpies.config.loading import load_config, resolved
from mpies.launch import reproduce
from mpies.launch.reproduce import Comparison, Reproduction, compare, compare_with_record, recipe_of
from mpies.report.curves import read_curves
from mpies.report.figures import draw_return
from mpies.report.records import read_published, read_record, read_recorded_metrics
from mpies.runs.metrics import read_metrics
from tests.support import HOME, invoke


@pytest.fixture(autouse=True)
def checkout(monkeypatch):
    monkeypatch.chdir(HOME)


def rows(returns, digests=None, steps=10):
    """Rows of metrics.csv whose generations have so many steps each."""
    cells = zip(returns, digests or "." * len(returns), strict=True)
    return [{"return_mean": str(m), "digest": d, "steps": str(steps * k)} for k, (m, d) in enumerate(cells, 1)]


@pytest.mark.parametrize("recipe", ["cartpole", "rastrigin"])
def test_a_recorded_recipe_is_reproduced(recipe, tmp_path):
    outcome = invoke("reproduce", recipe, "--out", tmp_path / "run")
    assert outcome.code == 0, outcome.stderr
    record = read_record(recipe)
    assert outcome.stdout.rstrip().endswith(f"range, {record['tolerance']:.0%} allowed: reproduced")
    assert len(read_metrics(tmp_path / "run")) == len(read_metrics(HOME / "results" / recipe))


def test_a_seed_that_was_not_recorded_is_compared_with_the_band_alone(tmp_path):
    outcome = invoke("reproduce", "cartpole", "--seed", 1234, "--generations", 2, "--out", tmp_path / "run")
    assert outcome.code in (0, 1) and outcome.stdout.count("\n") == 1, outcome.stderr
    assert outcome.stdout.startswith("cartpole, seed 1234: 2 generations, a seed that was not recorded; the curve ")
    assert yaml.safe_load((tmp_path / "run/config.yaml").read_text())["seed"] == 1234


def test_a_recipe_is_trained_as_it_was_recorded_but_for_no_longer(monkeypatch):
    trained = []
    monkeypatch.setattr(reproduce, "train", lambda ranks, arguments: trained.append((ranks, arguments)))
    first = read_record("cartpole")["seeds"][0]
    record = {"seeds": [{**first, "seed": 7, "generation": 12}, {**first, "seed": 9, "generation": 30}]}
    for seed, generations in ((7, None), (7, 5), (7, 100), (9, None), (8, None), (8, 20)):
        reproduce.train_again("hopper-openai", record, seed, Path("runs/x"), 2, generations)
    arguments = [str(recipe_of("hopper-openai")), "--out", "runs/x"]
    expected = [(7, 12), (7, 5), (7, 12), (9, 30), (8, 30), (8, 20)]
    assert trained == [(2, [*arguments, f"seed={seed}", f"stop.generations={limit}"]) for seed, limit in expected]


def test_each_seed_has_its_run_directory(monkeypatch):
    runs = []
    monkeypatch.setattr(reproduce, "train_again", lambda name, record, seed, out, *_: runs.append((seed, str(out))))
    monkeypatch.setattr(reproduce, "read_metrics", lambda run: rows([1.0]))
    first = read_record("swimmer")["seeds"][0]["seed"]
    for seed in (None, first, 88):
        reproduce.reproduce_recipe("swimmer", None, 1, None, seed)
    reproduce.reproduce_recipe("swimmer", "elsewhere", 1, None, 88)
    whole = (first, "runs/reproduce-swimmer")
    assert runs == [whole, whole, (88, "runs/reproduce-swimmer-seed-88"), (88, "elsewhere")]


def test_curves_are_compared_by_digest_and_by_what_they_reach():
    old = rows([0, 5, 10, 10], "abcd")
    assert compare({1: old}, 1, old) == Comparison(4, 4, 1, 0.0)
    comparison = compare({1: old}, 1, rows([0, 5, 6], "abx"))
    assert (comparison.generations, comparison.same) == (3, 2)
    assert comparison.difference == pytest.approx(4 / 3 / 10)
    without_return = rows([0, "", 10, 10], "axcd")
    assert compare({1: old}, 1, without_return) == Comparison(4, 1, 1, 0.0)
    assert compare({1: old}, 1, rows([0, 5, 10, 10, 99], "abcde")) == Comparison(4, 4, 1, 0.0)


def test_curves_are_compared_at_the_same_steps():
    old = rows([0, 10, 20, 30])
    assert compare({1: old}, 2, rows([10, 30], steps=20)).difference == 0
    assert compare({1: old}, 2, rows([0, 10], steps=20)).difference == pytest.approx((10 + 20) / 2 / 30)


def test_a_curve_is_compared_with_the_band_of_all_seeds():
    recorded = {1: rows([0, 0, 0], "abc"), 2: rows([0, 10, 20], "def")}
    assert compare(recorded, 3, rows([0, 5, 5], "xyz")) == Comparison(3, None, 2, 0.0)
    assert compare(recorded, 2, rows([0, 10, 26], "dex")) == Comparison(3, 2, 2, pytest.approx(6 / 3 / 20))
    assert compare(recorded, 3, rows([0, 0, -4], "abc")).same is None


@pytest.mark.parametrize("name", ["swimmer", "lunar_lander", "hopper"])
def test_every_recorded_seed_is_inside_its_own_band(name):
    record = read_record(name)
    for seed in record["seeds"]:
        comparison = compare_with_record(name, record, seed["seed"], read_recorded_metrics(name, record, seed["seed"]))
        assert comparison == Comparison(seed["generation"], seed["generation"], len(record["seeds"]), 0.0)


def test_a_curve_within_the_tolerance_is_reproduced():
    good, bad = (Reproduction("pole", 1, Comparison(9, 3, 1, difference), 0.15) for difference in (0.15, 0.151))
    assert good.is_reproduced and not bad.is_reproduced
    assert str(good) == (
        "pole, seed 1: 9 generations, the first 3 with the same bits; the curve differs from the recorded one by 15.0% "
        "of the range, 15% allowed: reproduced"
    )
    assert str(bad).endswith("by 15.1% of the range, 15% allowed: NOT reproduced")
    assert "1 generation, all with" in str(Reproduction("pole", 1, Comparison(1, 1, 1, 0.0), 0.15))
    assert "9 generations, all with" in str(Reproduction("pole", 1, Comparison(9, 9, 1, 0.0), 0.15))
    assert str(Reproduction("pole", 17, Comparison(9, None, 5, 0.04), 0.06)) == (
        "pole, seed 17: 9 generations, a seed that was not recorded; the curve is outside the band of 5 seeds by 4.0% "
        "of its range, 6% allowed: reproduced"
    )
    assert not Reproduction("pole", 1, Comparison(9, None, 1, float("nan")), 0.15).is_reproduced  # no return at all


@pytest.mark.parametrize("name", sorted(path.parent.name for path in HOME.glob("results/*/published.yaml")))
def test_what_others_published_is_drawn_beside(name, tmp_path):
    shutil.copy(HOME / "results" / name / "metrics.csv", tmp_path)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(resolved(load_config(name))))
    beside = read_published(name)
    for _, points in beside:
        assert points == sorted(points)
    (legend,) = draw_return(read_curves(tmp_path), "steps", beside=beside).legends
    assert beside and {title for title, _ in beside} < {text.get_text() for text in legend.get_texts()}
