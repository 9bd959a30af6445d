"""mpies probe: environments that are reproducible, that must be rebuilt, and that are not reproducible."""

import pytest

from mpies.report.probe import NOT_REPRODUCIBLE, REPRODUCIBLE, WHEN_REBUILT, judge, section_of
from tests.support import assert_refused, invoke

# Episodes of three steps.  Forgetful: the seed alone counts.  Remembering: earlier episodes too.  Random: chance.
MODULE = """
import os, sys
import gymnasium, numpy as np
from gymnasium import spaces

class Forgetful(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1e9, 1e9, (1,), np.float32), spaces.Discrete(2)
    episodes = 0
    def start(self): return self.seed
    def reset(self, seed=None, options=None):
        self.seed, self.steps = seed, 0
        self.episodes += 1
        return np.array([self.start()], np.float32), {}
    def step(self, action):
        self.steps += 1
        return np.array([self.steps], np.float32), float(action), self.steps == 3, False, {}

class Remembering(Forgetful):
    def start(self): return self.episodes

class Random(Forgetful):
    def start(self): return np.random.default_rng().random()

class Still(Forgetful):
    def start(self): return 0

class Loud(Forgetful):
    def start(self): return os.write(1, b"\\xff\\n")

class Lonely(Forgetful):
    def start(self): return os._exit(9) if "--fresh" in sys.argv else 0
"""


@pytest.fixture
def folder(here):
    (here / "own.py").write_text(MODULE)
    return here


@pytest.mark.parametrize(
    ("elsewhere", "used", "rebuilt", "verdict"),
    [
        ("a", "a", "a", REPRODUCIBLE),
        ("a", "b", "a", WHEN_REBUILT),
        ("a", "b", "b", NOT_REPRODUCIBLE),
        ("b", "a", "a", NOT_REPRODUCIBLE),
    ],
)
def test_the_verdict(elsewhere, used, rebuilt, verdict):
    assert judge(["a"], [elsewhere], [used], [rebuilt]) == verdict


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("Remembering", f"{WHEN_REBUILT}; memory not measured"),
        ("Still", f"{REPRODUCIBLE}; memory not measured; different seeds give the same episode"),
    ],
)
def test_environments_are_told_apart(name, verdict, folder):
    outcome = invoke("probe", f"own.py:{name}", "--steps", "5", "--episodes", "0", code=0)
    assert outcome.stdout == f"own.py:{name} (your own): {verdict}\n"


def test_a_process_that_dies_while_it_plays_is_told(folder):
    refused = invoke("probe", "own.py:Lonely", "--episodes", "0")
    assert_refused(refused, "another one that played it ended with exit code 9")


def test_each_has_a_line_with_the_growth_of_memory_and_the_worst_decides_the_exit_code(folder, write_config):
    write_config("environment: {id: 'own.py:Forgetful'}\n", "own.yaml")
    names = "own.yaml", "own.py:Random", "own.py:Loud"  # the last one prints what is no text
    lines = invoke("probe", *names, "--episodes", "10", "--steps", "5", code=1).stdout.splitlines()
    for line, name, verdict in zip(lines, names, (REPRODUCIBLE, NOT_REPRODUCIBLE, REPRODUCIBLE), strict=True):
        assert line.startswith(f"{name} (your own): {verdict}; memory over 10 episodes ") and " MB" in line
    config = write_config("environment: {id: CartPole-v1, max_steps: 7}\n")
    assert section_of(str(config)).max_steps == 7 and section_of("CartPole-v1").max_steps is None
    config = write_config("environment: {id: 'function:sphere', dimension: 3}\n")
    assert_refused(invoke("probe", config), "has no episodes to probe")
