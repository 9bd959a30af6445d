"""What every kind of policy in the registry must do."""

import numpy as np
import pytest

from mpies.envs.base import Binary, Composite, Discrete
from mpies.policies import POLICIES
from tests.policies.examples import BOX, WIDE, act, draw_members, draw_observations

PARTS = Composite((Discrete(3), BOX, Binary(2), BOX))
# Ways to act: name to (action, options).
WAYS = {
    "clipped": (BOX, {}),
    "scaled": (BOX, {"output": "scale"}),
    "floored": (BOX, {"output": "floor"}),
    "noisy": (BOX, {"action_noise": 0.1}),
    "gaussian": (BOX, {"sampling": "gaussian"}),
    "softmax of bins": (BOX, {"sampling": "softmax", "bins": "uniform:5"}),
    "discrete": (Discrete(3), {}),
    "softmax": (Discrete(3), {"sampling": "softmax"}),
    "parts": (PARTS, {}),
    "noisy parts": (PARTS, {"action_noise": 0.2, "sampling": "softmax"}),
    "drawn parts": (PARTS, {"sampling": "gaussian"}),
    "parts in bins": (PARTS, {"bins": "custom:-0.5,0.5", "sampling": "softmax"}),
}


@pytest.mark.parametrize(("kind", "time_input"), [(kind, None) for kind in POLICIES] + [("mlp", 100), ("lstm", 100)])
@pytest.mark.parametrize("way", WAYS)
def test_a_member_acts_the_same_beside_any_others_and_in_any_slot(kind, way, time_input, build):
    action, options = WAYS[way]
    policy = build(kind, action=action, time_input=time_input, **options)
    stack, observations, seeds = draw_members(policy), draw_observations(policy, 5, 9), np.arange(9) * 7
    together = act(policy, stack, observations, seeds=seeds)
    for slots in ([4], [8, 0], [3, 2, 1, 0, 4]):
        assert act(policy, stack, observations, slots, seeds).tobytes() == together[:, slots].tobytes()
    assert np.array_equal(observations, draw_observations(policy, 5, 9))  # acting does not change them
    is_random = "sampling" in options or "action_noise" in options
    assert policy.head.is_random == is_random
    assert np.array_equal(act(policy, stack, observations), together) != is_random


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", POLICIES)
def test_actions_have_the_type_and_the_bounds_of_the_environment(kind, way, build):
    action, options = WAYS[way]
    policy = build(kind, action=action, **options)
    actions = act(policy, draw_members(policy, scale=2), draw_observations(policy, 20, 9), seeds=range(9))
    if isinstance(action, Discrete):
        assert actions.dtype == np.int32 and actions.shape == (20, 9)
        assert set(actions.ravel().tolist()) == {0, 1, 2}
    else:
        assert actions.dtype == np.float32 and actions.shape == (20, 9, len(action.low))
        assert (actions >= action.low).all() and (actions <= action.high).all()
        assert len(np.unique(actions)) > 4
    if action is PARTS:
        assert set(np.unique(actions[..., 0])) == {0, 1, 2} and set(np.unique(actions[..., 3:5])) == {0, 1}


@pytest.mark.parametrize("kind", POLICIES)
def test_nothing_is_carried_from_one_episode_into_the_next(kind, build):
    policy = build(kind, action_noise=0.1)
    stack, observations = draw_members(policy), draw_observations(policy, 5, 9)
    actor = policy.bind(stack)
    first = act(policy, stack, observations, seeds=range(9), actor=actor)
    other = act(policy, stack, observations[::-1], seeds=range(50, 59), actor=actor)
    assert not np.array_equal(other[::-1], first)
    assert np.array_equal(act(policy, stack, observations, seeds=range(9), actor=actor), first)


@pytest.mark.parametrize("kind", POLICIES)
def test_an_episode_goes_on_in_another_slot_when_its_states_are_moved(kind, build):
    policy = build(kind, action_noise=0.1)
    stack, observations = draw_members(policy), draw_observations(policy, 6, 9)
    expected = act(policy, stack, observations, seeds=range(9))
    actor = policy.bind(stack)
    for slot in range(9):
        actor.begin(slot, slot)
    for now in observations[:3]:
        actor(now)
    for values in (stack, *actor.states):
        values[2] = values[8]
    order = [0, 1, 8, 3, 4, 5, 6, 7]
    actions = np.stack([actor(now[order]).copy() for now in observations[3:]])
    assert np.array_equal(actions, expected[3:, order])


@pytest.mark.parametrize("kind", POLICIES)
def test_a_stack_may_be_rewritten_between_calls(kind, build):
    policy = build(kind)
    stack, observations = draw_members(policy), draw_observations(policy, 1, 9)
    expected = act(policy, stack[::-1], observations)
    actor = policy.bind(stack)
    act(policy, stack, observations, actor=actor)
    stack[:] = stack[::-1].copy()
    assert np.array_equal(act(policy, stack, observations, actor=actor), expected)


@pytest.mark.parametrize("kind", POLICIES)
def test_the_first_parameters_are_a_function_of_the_seed(kind, build):
    policy = build(kind, sampling="gaussian")
    one, same, other = policy.initial(1), policy.initial(1), policy.initial(2)
    assert one.shape == (policy.size,) and one.dtype == np.float32
    assert np.array_equal(one, same) and not np.array_equal(one, other)
    assert one[-2:].tolist() == [-1, -1]  # log deviations


@pytest.mark.parametrize("kind", POLICIES)
def test_every_parameter_has_an_effect_and_so_has_the_time(kind, build):
    time_input = None if kind == "conv" else 2  # policies for images have none
    policy = build(kind, action=WIDE, time_input=time_input)
    observations, moved = draw_observations(policy, 4, 2), 0
    stack = draw_members(policy, 2)
    before = act(policy, stack, observations)
    numbers = range(0, policy.size, max(1, policy.size // 40))
    for number in numbers:
        changed = stack.copy()
        changed[:, number] += 1
        moved += not np.array_equal(act(policy, changed, observations), before)
    assert moved > (0.5 if kind == "conv" else 0.99) * len(numbers)  # ReLUs hide some
