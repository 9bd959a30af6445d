"""Every recipe and variant is a valid config that trains, and the pages say what was measured and nothing else."""

import re

import pytest

from mpies.comm.serial import Serial
from mpies.config.loading import load_config
from mpies.config.recipes import base_of, find_recipes, read_task
from mpies.launch.forecast.bench import temporary_run
from mpies.report.records import RESULTS, read_record
from mpies.runs.formats.policy_file import load_policy
from mpies.training.task import Task
from mpies.training.trainer import make_trainer
from tests.support import HOME, load_script

DOCS = load_script("docs/build_recipes.py")
RECIPES = find_recipes()
RECORDED = sorted(path.parent.name for path in RESULTS.glob("*/policy.h5"))
VARIANTS = [name for name in RECIPES if base_of(name) != name]


def shrink(config):
    """Overrides that leave of a recipe one generation of a few short episodes."""
    small = ["stop={generations: 1}", "evaluation.episodes=1", "noise.size=2_000_000", "solver.episodes=1"]
    small += ["solver.population=4", *(["solver.top=2"] if config.solver.kind == "ars" else [])]
    small += ["solver.timesteps_per_batch=0"] if config.solver.kind == "openai_es" else []
    small += ["solver.interactions=0"] if config.solver.kind == "pgpe" else []
    small += ["policy.reference=4"] if config.policy.kind == "conv" else []
    return small + ([] if config.environment.function else ["environment.max_steps=5"])


def test_every_variant_belongs_to_a_recipe_and_has_its_task():
    assert list(RECIPES) == sorted(RECIPES) and len(RECIPES) > 25
    for name, path in RECIPES.items():
        assert (path.parent.name == "variants") == (name in VARIANTS)
        assert RECIPES[base_of(name)].parent.name == "configs"
        assert read_task(path) == DOCS.read_heading(path).task


def some_of_each_kind():
    """Recipes that have each environment, kind of policy and kind of solver: the others run the same code."""
    found, seen = [], set()
    for name in RECIPES:
        config = load_config(name)
        environment = config.environment.id.partition("/")[0]  # one game stands for all
        kinds = {environment, f"policy {config.policy.kind}", f"solver {config.solver.kind}"}
        if kinds - seen:
            found.append(name)
        seen |= kinds
    return found


TRAINED = some_of_each_kind()


def has_parameters(name, count):
    """Whether the heading of a recipe says that its policy has so many parameters."""
    told = re.search(r"([\d,]+) parameters|none, (\d+)", DOCS.read_heading(RECIPES[name]).policy)
    return f"{count:,}" == (told[1] or told[2])


@pytest.mark.parametrize("name", [*RECORDED, *sorted({*RECIPES} - {*RECORDED, *TRAINED})])
def test_a_policy_has_the_parameters_that_the_heading_of_its_recipe_says(name):
    if name in RECORDED:
        assert has_parameters(name, len(load_policy(name).arrays["parameters"]))
    else:
        assert has_parameters(name, Task(load_config(name, shrink(load_config(name)))).dimension)


@pytest.mark.parametrize("name", TRAINED)
def test_a_recipe_trains_a_generation_with_the_parameters_that_its_heading_says(name, here):
    small, comm = load_config(name, shrink(load_config(name))), Serial()
    with temporary_run(small, comm) as run:
        trainer = make_trainer(small, comm, run)
        trainer.restore()
        trainer.run_generation()
        assert trainer.control.stop_reason(trainer.learner) == "generations"
    assert trainer.learner.clock.generation == 1 and trainer.control.failed_share == 0
    assert has_parameters(name, trainer.task.dimension)


@pytest.mark.parametrize("name", RECIPES)
def test_a_heading_has_no_measured_text_and_variants_of_openai_es_name_what_defaults_may_change(name):
    head, _, settings = RECIPES[name].read_text().partition("\nenvironment:")
    assert not re.search(r"Status|mpies train|reached here|±|\+-|\bseed \d", head)
    if name in VARIANTS and ("openai" in name or name == "pong-small"):
        assert all(f"{key}: " in settings for key in ("sigma", "weight_decay", "learning_rate"))


def test_the_pages_of_recipes_are_the_generated_ones():
    pages = DOCS.make_pages()
    assert {*(HOME / "docs/recipes").iterdir()} == {*pages} - {DOCS.TABLE}
    assert all(f"[{name}](recipes/{name}.md)" in pages[DOCS.TABLE] for name in RECIPES if base_of(name) == name)
    for path, text in pages.items():
        assert path.read_text() == text, f"{path.name} is out of date: make docs"


def test_steps_and_core_hours_of_the_table_include_those_of_the_policies_that_training_starts_from():
    assert DOCS.trace_starts("ant_bullet-walking") == ["ant_bullet-light"] and DOCS.trace_starts("rastrigin") == []
    starts = [*("_hardcore-annealed", "_hardcore-steady", "_hardcore-openai"), *("-steady", "-pepg")]
    first, *others = names = [f"bipedal_walker{name}" for name in starts]
    assert DOCS.trace_starts(first) == others
    seeds = [read_record(name)["seeds"][0] for name in names]
    steps, hours = DOCS.measure_cost(first, read_record(first))
    assert steps == sum(seed["steps"] for seed in seeds)
    assert hours == pytest.approx(sum(seed["core_seconds"] for seed in seeds) / 3600)
    swimmer = read_record("swimmer")
    assert DOCS.measure_cost("swimmer", swimmer)[0] == sorted(seed["steps"] for seed in swimmer["seeds"])[2]


def test_a_page_has_every_seed_also_those_that_failed(monkeypatch):
    record = read_record("swimmer")
    good = {**record["seeds"][0], "generation": 20, "seconds": 73.8, "ranks": 1, "core_seconds": 73.8}
    bad = {**good, "seed": 77, "ended": "generations", "reached": False, "steps": 1234567}
    dead = {**bad, "seed": 78, "ended": "not run to its end", "evaluation": None}
    over = {"interquartile_mean": 330.0, "interval_95": [20.0, 335.0]}
    monkeypatch.setattr(DOCS, "read_record", lambda name: record | {"seeds": [good, bad, dead], "over_seeds": over})
    page = DOCS.make_page("swimmer")
    assert "Mean return 330.0 (20.0 to 335.0). It is the interquartile mean" in page
    assert "1 of 3 seeds reached the mark of 325." in page
    assert "| 77 | last generation | not reached | 20 | 1,234,567 |" in page
    assert "| 78 | cut short | not reached |" in page and "| none |  |" in page
