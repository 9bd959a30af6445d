"""Each wrong value of a config is explained in one line."""

import re

import pytest

from mpies.config.loading import load_config
from mpies.core.errors import ConfigError
from tests.config.examples import CARTPOLE, SPHERE

# What a config file holds, and how the message begins after the path of the file; `...` stands for anything.
WRONG = [
    *((content, "is not ") for content in (b"\xff\xfe\x00", "a: \x00")),
    ("a: " + 5000 * "[" + 5000 * "]", "is nested too deeply; a config has three levels"),
    ("base: cartpole\nvary: {solver.sigma: [0.1, 0.2]}\n", "is a sweep file; train it with mpies sweep /"),
    ("# only a comment", "is empty; it needs at least environment: {id: CartPole-v1}"),
    ("- a\n- b", "must hold sections such as environment: {id: CartPole-v1}, but is the list [a, b]"),
    ("seed: 1", "environment is missing; add environment: {id: CartPole-v1}"),
    ("enviroment: {id: x}", "enviroment is not a key; did you mean environment?"),
    ("environment: {id: 5}", "environment.id must be text, but is 5; for instance environment.id: CartPole-v1"),
    ("environment: &a {id: CartPole-v1, kwargs: {b: *a}}", "*a names what contains it, or nothing"),
    ("environment: {id: CartPole-v1, kwargs: {levels: [{0: up}]}}", "...levels[0] has the key 0, which must be text"),
    ("environment: {id: CartPole-v1, kwargs: {a: {b: [0, .nan]}}}", "...a.b[1] accepts only finite numbers, but is"),
    ("environment: {id: CartPole-v1, kwargs: {start: 2024-01-01}}", "...start accepts only ... but is a date"),
    ("environment: {id: LQR-v0, kwargs: {frame_skip: 4}}", "...kwargs.frame_skip is not for kwargs: use environment."),
    ("environment: {id: LQR-v0, kwargs: {num_envs: 4}}", "...num_envs is not for kwargs: mpies sets it itself"),
    ("environment: {id: LQR-v0, kwargs: {instances: 1}}", "...use environment.instances"),
    ("environment: {id: LQR-v0, shift: 1}", "...shift is for functions only; remove it, or use id: function:NAME"),
    ("environment: {id: 'file.py:name', shift: 1}", "...shift is for functions only; remove it, or give"),
    (SPHERE.replace("5", "5, max_steps: 3"), "...max_steps is not for functions; remove it"),
    (SPHERE.replace("5", "1"), "environment.dimension must be at least 2, but is 1"),
    (SPHERE.replace("5", "5, instances: 1"), "...instances is not for functions; remove it"),
    ("environment: {id: LQR-v0, instances_per: node}", "...instances_per counts instances, which is missing"),
    ("environment: {id: 'function:ball', dimension: 5}", "environment.id must name a test function, but is 'func"),
    ("environment: {id: 'function:sphere'}", "environment.dimension is missing: how many parameters function:sphere"),
    (SPHERE + "policy: {kind: mlp}", "policy must be {kind: none} for a function of parameters, or left out"),
    ("environment: {id: CartPole-v1, backend: gyn}", "environment.backend must be one of ...; did you mean gym?"),
    ("environment: {id: CartPole-v1, adaptive: {threshold: 1.5}}", "...adaptive.start is missing; add start: 100"),
]
# As above, below the environment CartPole-v1.
WRONG_BELOW = [
    (f"seed: {'x' * 300}", f"seed must be a number, but is the text '{'x' * 56}..."),
    ("solver: {sigma: 1, sigma: 2}", "line 2 is not valid YAML (key 'sigma' appears twice; remove one)"),
    ("solver:\n  population: 4\n  sigma 0.1\n", "line 4 is not valid YAML (could not find expected ':')"),
    ("solver:\n\tsigma: 0.1\n", "line 3 is not valid YAML (found character '\\t' that cannot start any token"),
    ("solver: {pop: 40}", "solver.pop is not a key; did you mean solver.population?"),
    ("solver: {e: 40}", "solver.e is not a key; solver has population, episodes, "),
    ("solver: [1]", "solver must be a section of keys, but is the list [1]; for instance solver: {episodes: 1}"),
    ("solver: {population: 101}", "solver.population must be even (antithetic pairs), but is 101; use 100 or 102"),
    ("solver: {sigma:0.5}", "solver.'sigma:0.5' is not a key; put a space after the colon: sigma: 0.5"),
    ("population: 100", "population is not a key; did you mean solver.population?"),
    ("solver: {sigma: -1}", "solver.sigma must be greater than 0, but is -1; leave it out for ...0.02 (OpenAI's)"),
    ("solver: {sigma: yes}", "solver.sigma must be a number, but is true; leave it out for the default, 0.1"),
    ("solver: {optimizer: {learning_rate: .nan}}", "...learning_rate must be a finite number, but is nan; ...0.01"),
    ("solver: {optimizer: {kind: sgd, beta1: 0.9}}", "solver.optimizer.beta1 is not a key; it belongs to kind: adam"),
    ("policy: {hidden: [3, x]}", "policy.hidden[1] must be a number, but is the text 'x'; the default is [64, 64]"),
    ("policy: {bias: 1}", "policy.bias must be true or false, but is 1; the default is true"),
    ("policy: {kind: none}", "policy.kind none is for functions of parameters only; use kind: mlp"),
    ("noise: low_rank\nsolver: {kind: pepg}", "noise.kind low_rank works with ...is pepg; use noise: {kind: full}"),
    ("noise: {kind: low_rank}\npolicy: {kind: lstm}", "noise.kind low_rank is for ... but policy.kind is lstm"),
    ("solver: {kind: pepg, sigma: 1}", "solver.sigma is not a key; did you mean solver.sigma_init?"),
    ("solver: {kind: snes, weight_decay: 1}", "solver.weight_decay is not a key; it belongs to the kinds openai_es, "),
    ("tracking: {wandb: {entity: me}}", "tracking.wandb.project is missing; add project: my-project"),
    ("noise: {rank: 2}", "noise.rank is not a key; it belongs to kind: low_rank"),
    ("stop: {steps: 0}", "stop.steps must be at least 1, but is 0; leave it out for none"),
    ('? "a\\nb"\n: 2', "'a\\nb' is not a key; the top level has "),
    ("policy: {kind: torch, module: 'a.py:b', kwargs: {units: {1: 2}}}", "...units has the key 1, which must be text"),
    ("solver: {sigma_decay: }", "solver.sigma_decay must be a number, but is empty; the default is 1.0"),
    ("policy: {kind: torch, module: 5}", "policy.module must be text, but is 5; for instance ...file.py:make_policy"),
    ('policy: {init_from: "a\\0b"}', "policy.init_from must be text without the character 0, but is"),
    ("overlap: 1\nsolver: {kind: cma_es}", "overlap does not work with solver.kind cma_es, whose update needs members"),
]


def begins(message, line):
    return re.match(re.escape(line).replace(r"\.\.\.", ".*"), message)


def refusal(path, overrides=()):
    """What is said of a config that is refused."""
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return str(caught.value)


# An override of CARTPOLE, and how the message begins after "the command line".
WRONG_OVERRIDES = [
    *((wrong, f": {wrong!r} must be KEY=VALUE, for instance solver") for wrong in ("solver", "=3", "solver..sigma=3")),
    ("environment.id.x=3", ": environment.id.x is not a key, since environment.id is the text 'CartPole-v1' and not a"),
    ("solver.sigma=[1", ", solver.sigma: line 1 is not valid YAML"),
    ("solver.sigma=-1", ": solver.sigma must be greater than 0, but is -1; leave it out for ...0.02 (OpenAI's)"),
    ("solver.seed=3", ": solver.seed is not a key; did you mean seed?"),
    ("environment.noise=full", ": environment.noise is not a key; did you mean noise?"),
    ("solver=cmaes", ": solver.kind must be one of ars, cma_es, cr_fm_nes, "),
    ("environment.kwargs.far=-.inf", ": environment.kwargs.far accepts only finite numbers, but is -inf; give"),
]


@pytest.mark.parametrize(
    ("text", "overrides", "beginning"),
    [
        *((text, [], words) for text, words in WRONG),
        *((CARTPOLE + text, [], words) for text, words in WRONG_BELOW),
        *((CARTPOLE, [override], words) for override, words in WRONG_OVERRIDES),
    ],
)
def test_what_is_wrong_is_explained_in_one_line(text, overrides, beginning, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    message = refusal(path, overrides)
    assert begins(message, f"the command line{beginning}" if overrides else f"{path}: {beginning}"), message
    assert "\n" not in message and len(message) < len(str(path)) + 240


def test_an_error_of_the_file_stays_one_of_the_file_where_another_key_is_overridden(write_config):
    path = write_config(CARTPOLE + "solver: {sigma: -1}")
    unknown = refusal(path, ["solver.sigma_x=1", "stop.steps=5"])
    assert unknown.startswith("the command line: solver.sigma_x is not a key")
    assert refusal(path, ["stop.steps=5"]).startswith(f"{path}: solver.sigma must be greater than 0")
    write_config(CARTPOLE + "solver: {sigma_x: 1}")  # the override is the beginning of the unknown key's name
    assert refusal(path, ["solver.sigma=1"]).startswith(f"{path}: solver.sigma_x is not a key")


def test_keys_of_a_kind_that_the_command_line_replaces_are_explained(write_config):
    path = write_config(CARTPOLE + "solver: {weight_decay: 0.1, optimizer: {kind: adam, beta1: 0.8}}")
    message = refusal(path, ["solver.kind=cma_es"])
    cure = "write solver=KIND in place of solver.kind=KIND to drop the section's other keys"
    assert message.startswith(f"{path}: solver.optimizer is not a key") and message.endswith(cure)
    assert load_config(path, ["solver=cma_es"]).solver.kind == "cma_es"
    cure = "solver.optimizer=KIND in place of solver.optimizer.kind=KIND to drop"
    assert cure in refusal(path, ["solver.optimizer.kind=sgd"])
    assert "in place of" not in refusal(write_config(CARTPOLE + "solver: {kind: cma_es, optimizer: {}}"))


OWN = """
import enum
from typing import Literal
from pydantic import Field, model_validator
from mpies.solvers.openai_es import OpenAIES
from mpies.solvers.optimizers import AdamOptions, AnyOptimizer, SGDOptions
from mpies.solvers.options import Options as Section, Population, Positive

class Rate(Section):
    rate: Positive = 1.0

class Mine(OpenAIES):
    class Options(Population):
        made: AnyOptimizer = Field(default_factory=AdamOptions)
        optional: AnyOptimizer | None = None
        several: AdamOptions | SGDOptions = SGDOptions()
        rates: list[Rate] = Field(default_factory=list)
        step: Positive = Field(default_factory=lambda: 0.5)
        mode: Literal["mean", "median"] | None = None
        order: Literal[1, 2] = 1
        marks: list[Literal["x", "y"]] = []
        count: int = 3
        name: str = "a"
        is_fast: bool = False
        pair: tuple[int, int] = (1, 2)
        hue: enum.Enum("Hue", {"RED": "red", "BLUE": "blue"}) = "red"

        @model_validator(mode="after")
        def check(self):
            assert self.step < 2, "step must be less than 2; lower it"
            assert self.step != 1
            return {0.75: 1}[self.step] if self.step > 0.7 else self
"""


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("made: {beta1: 0.5}", "solver.made.kind must be one of adam, clipup, sgd, but is empty; use adam"),
        ("optional: {kind: sgd, momentum: 2}", "solver.optional.momentum must be at most 1, but is 2; the default is"),
        ("rates: 5", "solver.rates must be a list, but is 5; the default is []"),
        ("rates: [{rate: 0}]", "solver.rates[0].rate must be greater than 0, but is 0; the default is []"),
        ("rates: [{rat: 1}]", "solver.rates[0].rat is not a key; remove it"),
        ("mode: medain", "solver.mode must be one of mean, median, but is the text 'medain'; did you mean median?"),
        ("order: 3", "solver.order must be one of 1, 2, but is 3; use 1, for instance"),
        ("marks: [z]", "solver.marks[0] must be one of x, y, but is the text 'z'; use x, for instance"),
        ("pair: 5", "solver.pair must be a list, but is 5; the default is [1, 2]"),
        ("hue: green", "solver.hue must be 'red' or 'blue', but is the text 'green'; the default is red"),
        ("step: 2", "solver.step must be less than 2; lower it"),
        ("step: 1", "solver is refused by a validator of its class"),
        ("step: 0.8", "solver: its Options raised KeyError: 0.8"),
    ],
)
def test_keys_of_an_own_solver_are_explained_whatever_their_types(keys, line, write_config, tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    path = write_config(SPHERE + f"solver: {{kind: '{tmp_path}/mine.py:Mine', {keys}}}")
    message = refusal(path)
    assert begins(message, f"{path}: {line}"), message
