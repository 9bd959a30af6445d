"""What cannot fit into memory is refused in one line before any of it is asked for."""

from unittest.mock import Mock

import pytest

from mpies.comm import limits
from mpies.comm.limits import SOLVER, require_memory
from mpies.comm.serial import Serial
from mpies.config.loading import as_yaml, validate_config
from mpies.core.errors import ConfigError, NotEnoughSharedMemory
from mpies.launch.forecast import dry_run
from mpies.training.task import ROLLOUT, Task, training_needs
from mpies.training.trainer import make_trainer
from tests.support import assert_refused, invoke

CARTPOLE = {"environment": {"id": "CartPole-v1"}}
IMAGES = {"environment": {"id": "tests.envs.rover:Images"}}
CONVOLUTIONAL = {"kind": "conv", "convolutions": [[3, 4, 2]]}
SPHERE = {"environment": {"id": "function:sphere", "dimension": 10}}
MANY_MEMBERS = {"solver": {"population": 10**18}}

# Huge but valid: config, what the message names.
HUGE = {
    "hidden": (CARTPOLE | {"policy": {"hidden": [10**8]}}, r"the policy \(700,000,002 parameters\)"),
    "lstm": (CARTPOLE | {"policy": {"kind": "lstm", "hidden": 10**8}}, "the policy"),
    "population": (CARTPOLE | MANY_MEMBERS, r"139,698,386,192 GB of memory for solver\.population"),
    "episodes": (CARTPOLE | {"solver": {"episodes": 10**15}}, r"solver\.episodes"),
    "evaluation": (CARTPOLE | {"evaluation": {"episodes": 10**12}}, r"evaluation\.episodes"),
    "noise": (SPHERE | {"noise": {"size": 10**12}}, r"3,725 GB of memory for noise\.size"),
    "dimension": ({"environment": {"id": "function:sphere", "dimension": 10**15}}, r"environment\.dimension"),
    "reference": (IMAGES | {"policy": CONVOLUTIONAL | {"reference": 10**12}}, r"policy\.reference"),
    "parents": (SPHERE | {"solver": {"kind": "deep_ga", "population": 10**9, "parents": 10**9}}, SOLVER),
    "chains": (SPHERE | {"solver": {"kind": "deep_ga", "snapshot": 10**15}}, SOLVER),
    "means": (SPHERE | {"solver": {"kind": "novelty_es", "means": 10**15}}, SOLVER),
}


@pytest.mark.parametrize("name", HUGE)
def test_training_is_refused_with_the_size_its_cause_and_what_there_is(name):
    values, cause = HUGE[name]
    with pytest.raises(ConfigError, match=cause) as caught:
        make_trainer(validate_config(values, "x"), Serial())
    message = str(caught.value)
    assert message.startswith("a rank needs at least ") and "\n" not in message
    assert "can be used here; make that smaller" in message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("function:sphere environment.dimension=20000 solver.kind=cma_es", "needs 16.0 GB for 20,000 parameters"),
        ("CartPole-v1 policy.hidden=[100_000_000]", "for the policy (700,000,002 parameters)"),
    ],
)
def test_the_commands_refuse_it_in_one_line_before_anything_begins(words, message, here):
    for command, *more in (("check",), ("train",), ("train", "--dry-run")):
        assert_refused(invoke(command, *words.split(), *more), message)
    assert list(here.iterdir()) == []


def test_what_is_needed_is_compared_with_what_may_be_used(monkeypatch):
    monkeypatch.setattr(limits, "usable_memory", lambda: 1000 * 2**20)
    require_memory({"a": 600 * 2**20, "b": 400 * 2**20})
    with pytest.raises(ConfigError, match=r"at least 1\.5 GB of memory, 1\.0 GB of it for b, but 1,000 MB can be used"):
        require_memory({"a": 500 * 2**20, "b": 1024 * 2**20})
    with pytest.raises(ConfigError, match=r"at least 11 GB of memory for b, but"):
        require_memory({"a": 1, "b": 11 * 2**30})
    task = Task(validate_config(CARTPOLE | MANY_MEMBERS, "x"))  # it can be evaluated
    assert task.training_needs()["solver.population"] > limits.usable_memory()


@pytest.mark.parametrize(("population", "episodes", "key"), [(6, 2, "population"), (2, 2, "episodes")])
def test_what_training_needs(population, episodes, key):
    solver = {"population": population, "episodes": episodes}
    values = CARTPOLE | {"solver": solver, "noise": {"size": 5000}, "evaluation": {"episodes": 7}}
    config, rollouts = validate_config(values, "x"), population * episodes
    assert training_needs(config, 1000, 5) == {
        "noise.size": 20_000,
        "the parameters": 4000 * (min(5, rollouts) + 2),  # of the members that play side by side, of the mean, one more
        SOLVER: config.solver.memory(1000),
        f"solver.{key}": ROLLOUT * rollouts,
        "evaluation.episodes": ROLLOUT * 7,
    }


def test_a_command_that_runs_out_of_memory_says_so_in_one_line(monkeypatch):
    monkeypatch.setattr(dry_run, "describe_needs", Mock(side_effect=MemoryError("Unable to allocate 9. TiB")))
    outcome = invoke("check", "CartPole-v1", code=1)
    assert outcome.stderr.startswith("mpies: there is not enough memory (Unable to allocate 9. TiB)")
    assert outcome.stderr.count("\n") == 1


def test_a_dry_run_refuses_a_table_that_shared_memory_cannot_hold(monkeypatch, tmp_path, write_config):
    monkeypatch.setattr(dry_run, "lacking_shared_memory", lambda size: 2**20)
    config = write_config(as_yaml({**CARTPOLE, "solver": "openai_es"}))
    with pytest.raises(NotEnoughSharedMemory, match=r"^/dev/shm of a node is too small for 95 MB .*lower noise.size"):
        dry_run.describe_training(str(config), str(tmp_path / "run"), "auto", [], None, None, size=2)
