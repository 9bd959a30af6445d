"""What every kind of policy in the registry must do."""

import numpy as np
import pytest

from mpies.envs.base import Binary, Composite, Continuous, Discrete
from mpies.policies import POLICIES
from tests.policies.examples import BOX, act, draw_members, draw_observations

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


@pytest.mark.parametrize("time_input", [None, 100])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", POLICIES)
def test_a_member_acts_the_same_beside_any_others_and_in_any_slot(kind, way, time_input, build):
    if kind == "conv" and time_input:
        pytest.skip("policies for images have no time_input")
    action, options = WAYS[way]
    policy = build(kind, action=action, time_input=time_input, **options)
    stack, observations, seeds = draw_members(policy), draw_observations(policy, 5, 9), np.arange(9) * 7
    together = act(policy, stack, observations, seeds=seeds)
    for slots in ([4], [8, 0], [3, 2, 1, 0, 4]):
        assert act(policy, stack, observations, slots, seeds).tobytes() == together[:, slots].tobytes()
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
def test_acting_does_not_change_the_observations(kind, build):
    policy = build(kind)
    observations = draw_observations(policy, 2, 9)
    before = observations.copy()
    act(policy, draw_members(policy), observations)
    actor = policy.bind(draw_members(policy))
    actor.begin(0)
    actor(observations[0])
    assert np.array_equal(observations, before)


@pytest.mark.parametrize("kind", POLICIES)
def test_the_first_parameters_are_a_function_of_the_seed(kind, build):
    policy = build(kind, sampling="gaussian")
    one, same, other = policy.initial(1), policy.initial(1), policy.initial(2)
    assert one.shape == (policy.size,) and one.dtype == np.float32
    assert np.array_equal(one, same) and not np.array_equal(one, other)
    assert one[-2:].tolist() == [-1, -1]  # log deviations


@pytest.mark.parametrize("kind", POLICIES)
def test_every_parameter_has_an_effect(kind, build):
    policy = build(kind, action=Continuous(np.full(2, -1e6, np.float32), np.full(2, 1e6, np.float32)))
    observations, moved = draw_observations(policy, 4, 2), 0
    stack = draw_members(policy, 2)
    before = act(policy, stack, observations)
    numbers = range(0, policy.size, max(1, policy.size // 40))
    for number in numbers:
        changed = stack.copy()
        changed[:, number] += 1
        moved += not np.array_equal(act(policy, changed, observations), before)
    assert moved > (0.5 if kind == "conv" else 0.99) * len(numbers)  # ReLUs hide some


@pytest.mark.parametrize("kind", POLICIES)
def test_time_is_one_more_input(kind, build):
    if kind == "conv":
        pytest.skip("policies for images have no time_input")
    policy = build(kind, time_input=10)
    assert policy.inputs == 7
    actor = policy.bind(draw_members(policy, 2))
    assert actor.wants_steps and actor.compiled is None
    actor.begin(0)
    actor.begin(1)
    observations = draw_observations(policy, 1, 2)[0]
    early, late = actor(observations, np.array([0, 0])).copy(), actor(observations, np.array([0, 9])).copy()
    if kind in ("mlp", "torch"):  # the others have also moved on by a step
        assert np.array_equal(early[0], late[0])
    assert not np.array_equal(early[1], late[1])
    assert not build(kind).bind(draw_members(build(kind))).wants_steps
