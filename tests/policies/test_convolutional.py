import numpy as np
import pytest

from mpies import kernels
from mpies.core.errors import ConfigError
from mpies.envs.base import Interface
from mpies.policies import POLICIES, make_policy
from tests.policies.examples import BOX, IMAGE, OPTIONS, WIDE, act, draw_members, draw_observations


def convolve(images, weights, size, stride):
    """Outputs (k, rows, columns, filters) of images (k, h, w, channels), number by number."""
    rows, columns = ((length - size) // stride + 1 for length in images.shape[1:3])
    out = np.empty((len(images), rows, columns, weights.shape[1]))
    for row in range(rows):
        for column in range(columns):
            top, left = row * stride, column * stride
            patch = images[:, top : top + size, left : left + size]
            out[:, row, column] = patch.reshape(len(images), -1) @ weights
    return out


def as_images(observations):
    return observations.astype(np.float64).reshape(-1, *IMAGE).transpose(0, 2, 3, 1) / 255


@pytest.mark.parametrize("batch_normalization", [True, False])
def test_layers_are_those_of_a_float64_forward_pass(batch_normalization, build):
    policy = build("conv", action=WIDE, activation="tanh", batch_normalization=batch_normalization)
    stack, observations = draw_members(policy, 1), draw_observations(policy, 6, 1)
    views = [view[0].astype(np.float64) for view in policy.views(stack)]
    per_layer = 3 if batch_normalization else 2
    x, reference = as_images(observations[:, 0]), as_images(policy.constants["reference"])

    def finish_layer(number, x, reference):
        shift = views[per_layer * number + 1]
        if not batch_normalization:
            return np.tanh(x + shift), reference
        axes = tuple(range(reference.ndim - 1))
        mean, deviation = reference.mean(axes), np.sqrt(reference.var(axes) + 1e-5)
        scale = views[per_layer * number + 2]
        return [np.tanh((values - mean) / deviation * scale + shift) for values in (x, reference)]

    for number, (size, stride) in enumerate([(4, 2), (2, 1)]):
        weights = views[per_layer * number]
        x, reference = finish_layer(number, *(convolve(v, weights, size, stride) for v in (x, reference)))
    x, _ = finish_layer(2, *(v.reshape(len(v), -1) @ views[2 * per_layer] for v in (x, reference)))
    np.testing.assert_allclose(act(policy, stack, observations)[:, 0], x @ views[-2] + views[-1], atol=1e-5)


def test_the_reference_batch_is_computed_alike_however_it_is_split(build, monkeypatch):
    """Its size, 20, is no multiple of the number of images that NumPy computes at a time."""
    monkeypatch.setattr(kernels, "compiled", None)
    policy = build("conv", action=WIDE)
    stack, observations = draw_members(policy, 2), draw_observations(policy, 3, 2)
    expected = act(policy, stack, observations)
    monkeypatch.setattr("mpies.policies.convolutional._FRAMES", 20)
    assert np.array_equal(act(policy, stack, observations), expected)


@pytest.mark.parametrize(
    ("options", "shape", "message"),
    [
        ({"time_input": 100}, IMAGE, r"policy.time_input is not for kind: conv, .*; leave it out"),
        (
            {"normalize_observations": True},
            IMAGE,
            r"normalize_observations must be false for kind: conv, .*; leave it out",
        ),
        ({"convolutions": [[3, 13, 2]]}, IMAGE, "size 13 does not fit into 12 x 10 pixels"),
        ({"convolutions": [[3, 4, 2], [4, 5, 1]]}, IMAGE, "size 5 does not fit into 5 x 4 pixels"),
        ({}, None, r"images, a Box of uint8 .* are 6 numbers of .*; use kind: mlp"),
        ({}, (84, 84, 3), r"shape \(channels, height, width\), but these are \(84, 84, 3\)"),
    ],
)
def test_options_that_do_not_fit_the_images_and_observations_other_than_images_are_refused(options, shape, message):
    interface = Interface(int(np.prod(shape or 6)), BOX, shape)
    with pytest.raises(ConfigError, match=message):
        make_policy(POLICIES["conv"].Options(**OPTIONS["conv"] | options), interface, {})
