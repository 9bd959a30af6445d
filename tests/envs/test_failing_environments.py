"""A user's environment may do anything; whatever it does costs its own member only."""

import re
import time

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envs import EnvironmentProblem, make_world
from mpies.communicator import Serial
from mpies.rollouts import Session, Work
from tests.envs.test_worlds import play

PLACES = 12  # rollouts, two to a seed from 100 on


class Faulty(gymnasium.Env):
    """Ten steps of reward 1; with an odd seed it shows its fault at the third."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, fault):
        self.fault = fault
        self.broken = False

    def reset(self, seed=None, options=None):
        assert not self.broken, "it was used again after it failed"
        self.seed, self.steps = seed, 0
        if self.fault == "reset" and seed % 2:
            self.broken = True
            raise RuntimeError("no reset\ntoday")
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        observation, reward, over = np.full(2, self.steps, np.float32), 1.0, self.steps == 10
        if self.seed % 2 and self.steps == 3:
            self.broken = self.fault not in ("no reward", "reward", "infinite reward")
            if self.fault == "step":
                raise ZeroDivisionError("in step 3")
            if self.fault == "shape":
                observation = np.zeros(3, np.float32)
            if self.fault == "no reward":
                reward = None
            if self.fault == "reward":
                reward = float("nan")
            if self.fault == "infinite reward":
                reward = float("-inf")
            if self.fault == "tuple":
                return observation, reward, over
        return observation, reward, over, False, {}

    def close(self):
        if self.broken:
            raise RuntimeError("and it cannot even be closed")


gymnasium.register("Faulty-v0", lambda fault: Faulty(fault))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("step", "ZeroDivisionError: in step 3"),
        ("reset", "RuntimeError: no reset today"),
        ("shape", "ValueError: observation has 3 numbers, 2 were promised"),
        ("no reward", "return nan"),
        ("tuple", "ValueError: .*"),
        ("reward", "return nan"),
        ("infinite reward", "return -inf"),
    ],
)
def test_a_fault_costs_its_own_member_only_and_is_named(fault, message):
    world = make_world("Faulty-v0", fault=fault)
    for _ in range(2):  # and what failed is not met again
        rows, observed, failures = play(world, rollouts=PLACES)
        odd = (np.arange(PLACES) // 2 + 100) % 2 == 1
        assert np.isnan(rows["total"][odd]).all()
        assert (rows["total"][~odd] == 10).all()
        assert (rows["steps"][~odd] == 10).all()
        assert sorted(failures) == np.flatnonzero(odd).tolist()
        for said in failures.values():
            assert re.fullmatch(message, said)
        assert observed["rollout"].tolist() == np.flatnonzero(~odd).tolist()
        assert np.isfinite(observed["total"]).all()
    world.close()


class Slow(gymnasium.Env):
    """Five steps of reward 1; with an odd seed the third hangs, or each takes a while, or the reset hangs."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, fault):
        self.fault = fault

    def reset(self, seed=None, options=None):
        self.seed, self.steps = seed, 0
        if seed % 2 and self.fault == "hangs in reset":
            time.sleep(60)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.seed % 2 and self.fault == "hangs" and self.steps == 3:
            time.sleep(60)
        if self.seed % 2 and self.fault == "crawls":
            time.sleep(0.15)
        return np.full(2, self.steps, np.float32), 1.0, self.steps == 5, False, {}


gymnasium.register("Slow-v0", lambda fault: Slow(fault))


@pytest.mark.parametrize("fault", ["hangs", "crawls", "hangs in reset"])
def test_an_episode_that_outlasts_its_timeout_costs_its_own_member_only(fault):
    from mpies.config import validate
    from mpies.task import Task

    section = {"id": "Slow-v0", "kwargs": {"fault": fault}, "episode_timeout": 0.4}
    task = Task(validate({"environment": section, "policy": {"hidden": []}, "noise": {"size": 1000}}, "x"))
    work = Work(np.array([100, 101, 102, 104]), np.ones(4, bool), lambda rollout, out: out.fill(0))
    for _ in range(2):  # and the run goes on
        began = time.monotonic()
        session = Session(work, None, np.arange(4), Serial().tickets(4))
        task.player.play(session)
        rows, failures = session.found(), session.failures
        assert time.monotonic() - began < 30
        assert list(failures) == [1] and "took more than 0.4 s" in failures[1]
        assert np.isnan(rows["total"][rows["rollout"] == 1]).all()
        others = rows[rows["rollout"] != 1]
        assert sorted(others["rollout"].tolist()) == [0, 2, 3] and (others["total"] == 5).all()
        assert sorted(record[0] for record in session.observed) == [0, 2, 3]
    task.world.close()


class WithSpaces(gymnasium.Env):
    def __init__(self, observation, action):
        self.observation_space, self.action_space = observation, action


gymnasium.register("WithSpaces-v0", lambda **spaces: WithSpaces(**spaces))
BOX, TWO = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)


@pytest.mark.parametrize(
    ("observation", "action", "kind"),
    [
        (spaces.Dict({"a": BOX}), TWO, "observations of kind Dict"),
        (spaces.Tuple([BOX, BOX]), TWO, "observations of kind Tuple"),
        (BOX, spaces.Dict({"a": TWO}), "actions of kind Dict"),
        (BOX, spaces.MultiBinary(3), "actions of kind MultiBinary"),
    ],
)
def test_spaces_that_no_policy_serves_are_refused_in_one_line(observation, action, kind):
    with pytest.raises(EnvironmentProblem, match=f"WithSpaces-v0 has {kind}") as caught:
        make_world("WithSpaces-v0", observation=observation, action=action)
    assert "\n" not in str(caught.value)


def raise_error(error):
    raise error


gymnasium.register("Unbuildable-v0", lambda: raise_error(RuntimeError("no screen\nfound")))


def test_an_environment_that_cannot_be_built_is_said_in_one_line():
    with pytest.raises(EnvironmentProblem, match=r"Unbuildable-v0.*no screen found"):
        make_world("Unbuildable-v0")
