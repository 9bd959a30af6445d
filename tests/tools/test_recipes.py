"""Every recipe is a valid config that trains, and its heading is about what was measured."""

import re
import shlex
from pathlib import Path

import pytest

from mpies.comm.serial import Serial
from mpies.config.loading import load_config
from mpies.scaling.bench import temporary_run
from mpies.scaling.cost import describe_cost
from mpies.tools.reproduce import describe, list_recipes, read_heading, read_record, recipe_of
from mpies.training.trainer import Trainer
from tests.support import HOME

RECIPES = sorted((HOME / "configs").glob("*.yaml"))


def variants():
    """(path, overrides) of every recipe, and of every command in a recipe's heading."""
    for path in RECIPES:
        yield path, []
        for command in read_heading(path).variants:
            assert command.split()[2] == f"configs/{path.name}"
            yield path, [word for word in shlex.split(command) if re.match(r"[a-z_.]+=", word)]


def shrink(config):
    """Overrides that leave of a recipe one generation of a few short episodes."""
    small = ["stop={generations: 1}", "evaluation.episodes=1", "noise.size=2_000_000", "solver.episodes=1"]
    small += ["solver.population=4", *(["solver.top=2"] if config.solver.kind == "ars" else [])]
    small += ["solver.timesteps_per_batch=0"] if config.solver.kind == "openai_es" else []
    small += ["solver.interactions=0"] if config.solver.kind == "pgpe" else []
    small += ["policy.reference=4"] if config.policy.kind == "conv" else []
    return small + ([] if config.environment.function else ["environment.max_steps=5"])


def name(value):
    return value.stem if isinstance(value, Path) else " ".join(value)


@pytest.mark.parametrize(("path", "overrides"), list(variants()), ids=name)
def test_a_recipe_trains_a_generation(path, overrides):
    config = load_config(path, overrides)
    assert "parameters" in describe_cost(config, 2)
    trainer = Trainer(load_config(path, [*overrides, *shrink(config)]), Serial())
    trainer.build_table()
    with temporary_run(trainer):
        trainer.run_generation()
        assert trainer.control.stop_reason(trainer.learner) == "generations"
    assert trainer.learner.clock.generation == 1 and trainer.control.failed_share == 0


@pytest.mark.parametrize("path", RECIPES, ids=name)
def test_a_recipe_says_what_was_measured_and_nothing_else(path, monkeypatch):
    monkeypatch.chdir(HOME)
    heading = read_heading(path)
    assert set(heading.parts) == {"task", "source", "budget", "status"}
    status = heading.parts["status"]
    record = read_record(path.stem) if (HOME / "results" / path.stem).exists() else None
    if record and record["reached"]:
        assert status.startswith(f"reached here: {describe(record)}")
    elif record and record["ended"] == "generations":  # run to its end
        assert status.startswith(f"not reached here: {describe(record)}")
    else:
        assert status.startswith("settings as published, not yet run to the end here; ")
        assert "Predicted: " in status
        assert (describe(record) if record else "not begun") in status


def test_every_record_has_a_recipe(monkeypatch):
    monkeypatch.chdir(HOME)
    for record in (HOME / "results").glob("*/record.yaml"):
        assert recipe_of(record.parent.name).exists()


def test_the_page_of_recipes_is_what_they_say(monkeypatch):
    monkeypatch.chdir(HOME)
    assert (HOME / "docs/recipes.md").read_text().rstrip() == list_recipes()
