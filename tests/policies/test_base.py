import numpy as np

from mpies.envs.base import Interface
from mpies.policies import make_policy
from mpies.policies.exported import aligned_stack
from mpies.policies.mlp import MLPOptions
from tests.policies.examples import BOX


def test_parameters_are_the_weights_and_biases_of_one_layer_after_the_other():
    policy = make_policy(MLPOptions(hidden=[3], sampling="gaussian"), Interface(4, BOX))
    assert policy.size == 4 * 3 + 3 + 3 * 2 + 2 + 2 and policy.matrices == ((0, 4, 3), (15, 3, 2))
    stack = aligned_stack(2, policy.size)
    stack[1] = np.arange(policy.size)
    views = policy.views(stack)
    assert [view.shape for view in views] == [(2, 4, 3), (2, 3), (2, 3, 2), (2, 2), (2, 2)]
    assert np.array_equal(np.concatenate([view[1].ravel() for view in views]), stack[1])
    views[2][0, 1, 1] = 5
    assert stack[0, 4 * 3 + 3 + 3] == 5


def test_first_weights_have_columns_of_the_documented_norm():
    policy = make_policy(MLPOptions(hidden=[7]), Interface(5, BOX))
    parameters = policy.initial(1)
    first, first_biases, last, last_biases = np.split(parameters, [35, 42, 56])
    np.testing.assert_allclose(np.linalg.norm(first.reshape(5, 7), axis=0), 1, rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(last.reshape(7, 2), axis=0), 0.01, rtol=1e-6)
    assert not first_biases.any() and not last_biases.any() and len(last_biases) == 2
    assert not make_policy(MLPOptions(initial="zeros"), Interface(5, BOX)).initial(1).any()


def test_time_is_the_steps_divided_by_the_key_and_comes_after_the_observation():
    policy = make_policy(MLPOptions(hidden=[], time_input=50), Interface(1, BOX))
    stack = aligned_stack(2, policy.size)
    policy.views(stack)[0][:] = [[1.0, 0.0], [0.0, 1.0]]  # the observation, and the time, as they are
    actions = policy.bind(stack)(np.array([[0.25], [-0.5]], np.float32), np.array([5, 25]))
    np.testing.assert_array_equal(actions, np.array([[0.25, 0.1], [-0.5, 0.5]], np.float32))
