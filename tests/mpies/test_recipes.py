"""Every recipe is a valid config that trains."""

import re
import shlex
from pathlib import Path

import pytest

from mpies.bench import NoProgress, NoSignals, passing_run
from mpies.communicator import Serial
from mpies.config import load
from mpies.cost import describe_cost
from mpies.train import Trainer

HOME = Path(__file__).resolve().parents[2]
RECIPES = sorted((HOME / "configs").glob("*.yaml"))


def commented(path):
    """The lines of a recipe's heading."""
    return [line[1:].strip() for line in path.read_text().splitlines() if line.startswith("#")]


def variants():
    """(path, overrides) of every recipe, and of every command in a recipe's heading."""
    for path in RECIPES:
        yield path, []
        for line in commented(path):
            if line.startswith("mpies train "):
                assert line.split()[2] == f"configs/{path.name}"
                yield path, [word for word in shlex.split(line)[3:] if re.match(r"[a-z_.]+=", word)]


def shrink(config):
    """Overrides that leave of a recipe one generation of a few short episodes."""
    small = ["stop={generations: 1}", "evaluation.episodes=1", "noise.size=2_000_000", "solver.episodes=1"]
    small += ["solver.population=4", *(["solver.top=2"] if config.solver.kind == "ars" else [])]
    small += ["solver.timesteps_per_batch=0"] if config.solver.kind == "openai_es" else []
    small += ["policy.reference=4"] if config.policy.kind == "conv" else []
    return small + ([] if config.environment.function else ["environment.max_steps=5"])


def name(value):
    return value.stem if isinstance(value, Path) else " ".join(value)


@pytest.mark.parametrize(("path", "overrides"), variants(), ids=name)
def test_a_recipe_trains_a_generation(path, overrides):
    config = load(path, overrides)
    assert "parameters" in describe_cost(config, 2)
    trainer = Trainer(load(path, [*overrides, *shrink(config)]), Serial(), NoSignals())
    trainer.build_table()
    with passing_run(trainer) as run:
        assert trainer.advance(run, NoProgress()) == "generations"
    assert trainer.learner.clock.generation == 1 and trainer.failed == 0
