"""Which spaces of gymnasium become which Interface, and observations and actions of one part or several."""

import warnings

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

BOX, TWO = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)
ROVER = "tests.envs.rover:Rover"


@pytest.mark.parametrize(
    ("observation", "size", "shape"),
    [
        (spaces.Box(-1, 1, (2, 3), np.float32), 6, None),
        (spaces.Box(0, 255, (4, 8, 9), np.uint8), 4 * 8 * 9, (4, 8, 9)),
        (spaces.Box(0, 255, (7,), np.uint8), 7, None),  # such as the memory of a game console
        (spaces.Box(0, 1, (4, 8, 9), np.float32), 4 * 8 * 9, None),
    ],
)
def test_the_size_of_an_observation(observation, size, shape):
    interface = interface_of("Some-v0", observation, TWO)
    assert (interface.observation_size, interface.shape, interface.action) == (size, shape, Discrete(2))


def test_the_bounds_of_an_action_are_float32_and_none_where_they_are_too_large():
    most = np.finfo(np.float64).max
    low, high = np.array([[-1.0], [-most]]), np.array([[most], [3.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        action = interface_of("Some-v0", BOX, spaces.Box(low, high, dtype=np.float64)).action
    assert (action.low.tolist(), action.high.tolist()) == ([-1, -np.inf], [np.inf, 3])
    assert isinstance(action, Continuous) and action.low.dtype == action.high.dtype == np.float32


NO_SPACE = "_space must be a space of gymnasium.spaces, such as Box(-1, 1, (3,)), but is "


@pytest.mark.parametrize(
    ("observation", "action", "line"),
    [
        (spaces.Text(5), TWO, " has observations of kind Text; needed: Box, Discrete,"),
        (
            spaces.Dict({"a": BOX, "b": spaces.Tuple([TWO, spaces.Sequence(BOX)])}),
            TWO,
            " has observations of kind Sequ",
        ),
        (spaces.Tuple([BOX, spaces.Text(5)]), TWO, " has observations of kind Text (observation[1])"),
        (BOX, spaces.Dict({"a": spaces.Graph(BOX, None)}), " has actions of kind Graph (action['a'])"),
        (BOX, spaces.OneOf([TWO, BOX]), " has actions of kind OneOf"),
        (BOX, spaces.Tuple([]), " has actions without numbers"),
        (spaces.Dict({}), TWO, " has observations without numbers"),
        (None, TWO, f": observation{NO_SPACE}None"),
        (BOX, 4, f": action{NO_SPACE}4"),
    ],
)
def test_spaces_that_no_policy_serves_are_refused_in_one_line(observation, action, line):
    with pytest.raises(EnvironmentProblem) as caught:
        interface_of("Some-v0", observation, action)
    assert str(caught.value).startswith(f"Some-v0{line}") and "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_action_is_a_copy_within_the_bounds(dtype):
    for bound in (0.1, 0.4, 0.8):
        box = spaces.Box(-bound, bound, (2,), dtype)
        for space in (box, spaces.Dict({"a": box})):
            numbers = np.array([bound, -bound], np.float32)
            action = action_maker(space)(numbers)
            inner = action["a"] if isinstance(action, dict) else action
            assert space.contains(action) and not np.shares_memory(inner, numbers)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_an_action_of_a_box_of_integers_is_the_nearest_whole_number_within_its_bounds(dtype):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max  # in float32 the highest may be above the bound: 2^31
    small = (0, 3, [0.4, 0.6, 1.4, 2.51, -7, 9], [0, 1, 1, 3, 0, 3])
    for lowest, highest, numbers, expected in (small, (low, high, [low, 7, high], [low, 7, high])):
        box = spaces.Box(lowest, highest, (len(numbers),), dtype)
        for space in (box, spaces.Tuple([box])):
            action = action_maker(space)(np.array(numbers, np.float32))
            inner = action[0] if isinstance(action, tuple) else action
            assert space.contains(action) and inner.tolist() == expected and inner.dtype == dtype


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
every_space = pytest.mark.parametrize("space", SPACES, ids=range(len(SPACES)))


@every_space
def test_observations_are_flattened_as_gymnasium_does(space):
    space.seed(3)
    interface = interface_of("Some-v0", space, TWO)
    for observation in (space.sample() for _ in range(20)):
        found, expected = flatten_observation(space, observation), spaces.flatten(space, observation)
        assert found.dtype == np.float32 and found.shape == (interface.observation_size,)
        assert np.array_equal(found, np.asarray(expected, np.float32))


def numbers_of(space, action):
    """The numbers that make_action takes, of an action in the environment's own form."""
    if isinstance(space, spaces.Tuple | spaces.Dict):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        return np.concatenate([numbers_of(part, action[key]) for key, part in parts])
    return np.ravel(np.asarray(action) - getattr(space, "start", 0)).astype(np.float32)


@every_space
def test_a_policy_can_choose_every_action_of_the_space_and_no_other(space):
    action, make = interface_of("Some-v0", BOX, space).action, action_maker(space)
    chosen = [*draw_actions(action, 50, np.random.default_rng(3))]
    chosen += [action.low, action.high] if isinstance(action, Composite) else []
    for values in chosen:
        assert space.contains(make(values)), (space, values, make(values))
    space.seed(5)
    for wanted in (space.sample() for _ in range(20)):
        numbers = numbers_of(space, wanted)
        made = make(numbers[0] if isinstance(space, spaces.Discrete) else numbers)
        np.testing.assert_allclose(spaces.flatten(space, wanted), spaces.flatten(space, made), rtol=1e-6)


def test_the_parts_of_an_action_are_in_the_order_of_the_space():
    action = interface_of("Some-v0", BOX, ACTIONS["mixed"]).action
    arm, lamps, gear, left, right = action.parts  # gymnasium sorts the keys of a Dict
    assert (lamps, gear, left, right) == (Binary(3), Discrete(3), Discrete(2), Discrete(4))
    assert isinstance(arm, Continuous) and arm.high.tolist() == [1, 3]
    assert action.low.tolist() == [-1, -1, 0, 0, 0, 0, 0, 0] and action.high.tolist() == [1, 3, 1, 1, 1, 2, 1, 3]
    made = make_action(ACTIONS["mixed"], np.array([0.5, 2, 1, 0, 1, 2, 1, 0], np.float32))
    assert made["gear"] == 7 and made["wheels"].tolist() == [2, -2]
    assert made["arm"][0].tolist() == [[0.5], [2]] and made["arm"][1].tolist() == [1, 0, 1]


WHOLE = OBSERVATION.sample()
SIGHT, GEARS = WHOLE["sight"], WHOLE["gears"]


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (WHOLE | {"sight": (SIGHT[0], 5)}, "observation['sight'][1] is 5, which is not one of -1 to 1"),
        (WHOLE | {"sight": (np.zeros(3), 0)}, "observation['sight'][0] has 3 numbers, but 4 were expected"),
        (WHOLE | {"sight": (1, 2, 3)}, "observation['sight'] must be a tuple of 2, but is a tuple of 3"),
        (WHOLE | {"gears": GEARS + 4}, "which is not one of 1 to 2"),
        (WHOLE | {"gears": GEARS[0]}, "observation['gears'] has 2 numbers, but 4 were expected"),
        ({name: WHOLE[name] for name in ("charge", "lamps", "sight")}, "observation has no 'gears', only"),
    ],
)
def test_an_observation_of_another_form_is_named(observation, message):
    with pytest.raises(ValueError) as caught:
        flatten_observation(OBSERVATION, observation)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("environment_id", "kwargs", "size"),
    [
        *((ROVER, {"actions": actions}, 4 + 3 + 4 + 11 + 1) for actions in ACTIONS),
        ("gymnasium:Blackjack-v1", {}, 32 + 11 + 2),
        ("gymnasium:Taxi-v4", {}, 500),
        ("gymnasium:Pendulum-v1", {}, 3),
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


@pytest.mark.parametrize(("names", "size"), [(("charge",), 1), (("lamps", "charge"), 1 + 4), (("sight",), 4 + 3)])
def test_parts_of_a_dict_are_picked_by_name(names, size):
    env, (whole, _) = make_env(ROVER, observations=names), Rover().reset(seed=3)
    assert env.interface.observation_size == size
    shown = [spaces.flatten(part, whole[key]) for key, part in OBSERVATION.spaces.items() if key in names]
    np.testing.assert_array_equal(env.open([3]).observations[0], np.concatenate(shown).astype(np.float32))


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
