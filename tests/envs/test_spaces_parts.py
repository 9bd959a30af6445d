"""Observations and actions of several parts: Dict, Tuple, MultiDiscrete and MultiBinary, nested too."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from mpies.envs import EnvironmentProblem, make_env
from mpies.envs.base import Binary, Composite, Continuous, Discrete, draw_actions
from mpies.envs.spaces import action_maker, flatten_observation, interface_of, make_action
from tests.envs import episodes
from tests.envs.episodes import play
from tests.envs.rover import ACTIONS, OBSERVATION, Rover

FLOATS = spaces.Box(-1, 1, (2,), np.float32)
ROVER = "tests.envs.rover:Rover"


def random_space(random, depth=2):
    """A space of any kind that mpies serves, nested at most so deep."""
    kind = random.integers(6 if depth else 4)
    shape = tuple(random.integers(1, 4, random.integers(1, 3)).tolist())
    if kind == 0:
        return spaces.Box(-3, 3, shape, random.choice([np.float32, np.float64]))
    if kind == 1:
        return spaces.Discrete(int(random.integers(1, 6)), start=int(random.integers(-3, 4)))
    if kind == 2:
        return spaces.MultiDiscrete(random.integers(1, 5, shape), start=random.integers(-3, 4, shape))
    if kind == 3:
        return spaces.MultiBinary(shape)
    parts = [random_space(random, depth - 1) for _ in range(random.integers(1, 4))]
    return spaces.Tuple(parts) if kind == 4 else spaces.Dict({f"z{9 - n}": part for n, part in enumerate(parts)})


SPACES = [OBSERVATION, *ACTIONS.values(), *(random_space(np.random.default_rng(seed)) for seed in range(25))]


@pytest.mark.parametrize("space", SPACES, ids=range(len(SPACES)))
def test_observations_are_flattened_as_gymnasium_does(space):
    space.seed(3)
    interface = interface_of("Some-v0", space, spaces.Discrete(2))
    for observation in (space.sample() for _ in range(20)):
        found, expected = flatten_observation(space, observation), spaces.flatten(space, observation)
        assert found.dtype == np.float32 and found.shape == (interface.observation_size,)
        assert np.array_equal(found, np.asarray(expected, np.float32))


@pytest.mark.parametrize("space", SPACES, ids=range(len(SPACES)))
def test_every_action_that_a_policy_can_choose_is_one_of_the_space(space):
    action = interface_of("Some-v0", FLOATS, space).action
    make, random = action_maker(space), np.random.default_rng(3)
    for values in draw_actions(action, 50, random):
        assert space.contains(make(values)), (space, values, make(values))
    if isinstance(action, Composite):
        for values in (action.low, action.high):
            assert space.contains(make(values))


def numbers_of(space, action):
    """The numbers that make_action takes, of an action in the environment's own form."""
    if isinstance(space, spaces.Tuple | spaces.Dict):
        keys = space.spaces if isinstance(space, spaces.Dict) else range(len(space.spaces))
        return [number for key in keys for number in numbers_of(space[key], action[key])]
    start = getattr(space, "start", 0)
    return np.ravel(np.asarray(action) - start).astype(np.float32).tolist()


@pytest.mark.parametrize("space", SPACES, ids=range(len(SPACES)))
def test_no_action_of_the_space_is_out_of_reach(space):
    space.seed(5)
    for action in (space.sample() for _ in range(20)):
        numbers = np.array(numbers_of(space, action), np.float32)
        made = make_action(space, numbers[0] if isinstance(space, spaces.Discrete) else numbers)
        one, other = (spaces.flatten(space, value) for value in (action, made))
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_the_parts_of_an_action_are_in_the_order_of_the_space():
    action = interface_of("Some-v0", FLOATS, ACTIONS["mixed"]).action
    arm, lamps, gear, left, right = action.parts  # gymnasium sorts the keys of a Dict
    assert (lamps, gear, left, right) == (Binary(3), Discrete(3), Discrete(2), Discrete(4))
    assert isinstance(arm, Continuous) and arm.high.tolist() == [1, 3]
    assert action.low.tolist() == [-1, -1, 0, 0, 0, 0, 0, 0] and action.high.tolist() == [1, 3, 1, 1, 1, 2, 1, 3]
    made = make_action(ACTIONS["mixed"], np.array([0.5, 2, 1, 0, 1, 2, 1, 0], np.float32))
    assert made["gear"] == 7 and made["wheels"].tolist() == [2, -2]
    assert made["arm"][0].tolist() == [[0.5], [2]] and made["arm"][1].tolist() == [1, 0, 1]


SIGHT, GEARS = OBSERVATION["sight"].sample(), OBSERVATION["gears"].sample()
WHOLE = OBSERVATION.sample()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sight": (SIGHT[0], 5)}, "observation['sight'][1] is 5, which is not one of -1 to 1"),
        ({"sight": (np.zeros(3), 0)}, "observation['sight'][0] has 3 numbers, but 4 were expected"),
        ({"sight": (1, 2, 3)}, "observation['sight'] must be a tuple of 2, but is a tuple of 3"),
        ({"gears": GEARS + 4}, "which is not one of 1 to 2"),
        ({"gears": GEARS[0]}, "observation['gears'] has 2 numbers, but 4 were expected"),
    ],
)
def test_an_observation_of_another_form_is_named(change, message):
    with pytest.raises((ValueError, TypeError)) as caught:
        flatten_observation(OBSERVATION, WHOLE | change)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="observation has no 'gears', only"):
        flatten_observation(OBSERVATION, {name: value for name, value in WHOLE.items() if name != "gears"})


@pytest.mark.parametrize(
    ("environment_id", "kwargs", "size"),
    [
        *((ROVER, {"actions": actions}, 4 + 3 + 4 + 11 + 1) for actions in ACTIONS),
        *(
            ("gymnasium:Blackjack-v1", {}, 32 + 11 + 2),
            ("gymnasium:Taxi-v4", {}, 500),
            ("gymnasium:Pendulum-v1", {}, 3),
        ),
    ],
)
def test_episodes_are_those_of_the_bare_environment(environment_id, kwargs, size):
    env, name = make_env(environment_id, max_steps=30, **kwargs), environment_id.partition(":")[2]
    env.try_out()
    for seed, episode in zip((3, 4), play(env, [3, 4]), strict=True):
        bare = Rover(**kwargs) if kwargs else gymnasium.make(name, max_episode_steps=30)
        observation, drawn = bare.reset(seed=seed)[0], episodes.draw_actions(env, seed, 60)
        for step in range(len(episode.rewards)):
            flat = np.asarray(spaces.flatten(bare.observation_space, observation), np.float32)
            assert flat.shape == (size,) and np.array_equal(episode.observations[step], flat)
            observation, reward, *_ = bare.step(make_action(bare.action_space, drawn[step]))
            assert episode.rewards[step] == reward
        assert episode.is_over


def test_parts_of_envpools_observations_that_are_numbers_are_one_hot():
    pytest.importorskip("envpool")
    env = make_env("Maze-v0")  # two places of 10 x 10, 100 walls, up to 100 steps, a mask of four actions
    assert env.backend == "envpool" and env.interface.observation_size == 4 * 10 + 100 + 101 + 4
    (episode,) = play(env, [3], steps=5)
    places = episode.observations[:, :40].reshape(-1, 4, 10)
    assert (places.sum(axis=2) == 1).all() and set(np.unique(places)) == {0, 1}
    assert episode.observations[:6, 140:241].argmax(axis=1).tolist() == list(range(len(episode.observations)))


@pytest.mark.parametrize(
    ("names", "size"), [((), 4 + 3 + 4 + 11 + 1), (("charge",), 1), (("lamps", "charge"), 1 + 4), (("sight",), 4 + 3)]
)
def test_parts_of_a_dict_are_picked_by_name(names, size):
    whole, env = make_env(ROVER), make_env(ROVER, observations=names)
    assert env.interface.observation_size == size
    keys = list(OBSERVATION.spaces)
    parts = np.split(
        whole.open([3]).observations[0], np.cumsum([spaces.flatdim(OBSERVATION[key]) for key in keys])[:-1]
    )
    shown = [part for key, part in zip(keys, parts, strict=True) if key in names or not names]
    np.testing.assert_array_equal(env.open([3]).observations[0], np.concatenate(shown))


def test_parts_of_envpools_observations_are_picked_by_name():
    pytest.importorskip("envpool", reason="EnvPool is not installed")
    whole = make_env("CartpoleBalance-v1", "envpool").open([3]).observations
    shown = make_env("CartpoleBalance-v1", "envpool", observations=["velocity"]).open([3])
    np.testing.assert_array_equal(shown.observations, whole[:, -2:])
    env = make_env("WalkerWalk-v1", "envpool", observations=["height", "orientations"])
    assert list(env.interface.observation_space.spaces) == ["orientations", "height"]  # EnvPool's order, not the names'
    whole = make_env("WalkerWalk-v1", "envpool").open([3]).observations
    np.testing.assert_array_equal(env.open([3]).observations, whole[:, : env.interface.observation_size])
    assert shown.calls  # a single part needs no joining, so the compiled loop takes it


def test_spaces_of_gym_are_converted(tmp_path):
    pytest.importorskip("gym")
    (tmp_path / "old.py").write_text(
        "from gym import spaces\n"
        "class Old:\n"
        "    observation_space = spaces.Dict({'b': spaces.Tuple([spaces.Discrete(3)]), 'a': spaces.MultiBinary(2)})\n"
        "    action_space = spaces.Dict({'n': spaces.MultiDiscrete([2, 3]), 'm': spaces.Box(0, 1, (1,))})\n"
        "    def seed(self, seed): pass\n"
        "    def reset(self): return {'b': (2,), 'a': [0, 1]}\n"
        "    def step(self, action):\n"
        "        assert sorted(action) == ['m', 'n'] and action['n'].shape == (2,), action\n"
        "        return self.reset(), 1.0, True, {}\n"
        "    def close(self): pass\n"
    )
    env = make_env(f"{tmp_path}/old.py:Old")
    env.try_out()
    (episode,) = play(env, [1])
    assert episode.observations.tolist() == [[0, 1, 0, 0, 1]] * 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sight": (SIGHT[0], 0.5)}, "part 1 of part 'sight' of the observation of reset must hold whole numbers"),
        ({"lamps": "on"}, "part 'lamps' of the observation of reset must hold numbers, but is the text 'on'"),
    ],
)
def test_a_wrong_part_of_every_observation_is_named_before_the_first_generation(change, message, monkeypatch):
    monkeypatch.setattr(Rover, "_observe", lambda self: WHOLE | change)
    with pytest.raises(EnvironmentProblem) as caught:
        make_env(ROVER, rebuild=False).try_out()
    assert message in str(caught.value) and ROVER in str(caught.value) and "\n" not in str(caught.value)
