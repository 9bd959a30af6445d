"""Which spaces of gymnasium become which Interface."""

import warnings

import numpy as np
import pytest
from gymnasium import spaces

from mpies.envs import EnvironmentProblem
from mpies.envs.base import Continuous, Discrete
from mpies.envs.spaces import action_maker, interface_of

BOX, TWO = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)


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


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint64])
def test_a_whole_action_reaches_the_bounds_of_its_dtype(dtype):
    limits = np.iinfo(dtype)
    box = spaces.Box(limits.min, limits.max, (3,), dtype)
    lowest, highest = np.float32(limits.min), np.float32(limits.max)  # which may be above the bound: 2^31
    for space in (box, spaces.Tuple([box])):
        action = action_maker(space)(np.array([lowest, 7, highest], np.float32))
        inner = action[0] if isinstance(action, tuple) else action
        assert space.contains(action) and inner.tolist() == [limits.min, 7, limits.max]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64])
def test_an_action_of_a_box_of_integers_is_the_nearest_whole_number(dtype):
    make = action_maker(spaces.Box(0, 3, (6,), dtype))
    action = make(np.array([0.4, 0.6, 1.4, 2.51, -7, 9], np.float32))
    assert action.tolist() == [0, 1, 1, 3, 0, 3] and action.dtype == dtype
