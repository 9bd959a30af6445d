"""What every kind of policy keeps, and each kind against PyTorch where that is installed."""

from mpies.runs import hdf5
from mpies.runs.metrics import read_metrics
from pathlib import Path

import numpy as np
import pytest

from mpies.envs.base import Continuous, Discrete, Interface
from mpies.errors import ConfigError
from mpies.config.loading import validate_config
from mpies.policies import POLICIES, PolicyProblem, aligned_stack, make_policy

BOX = Continuous(np.array([-1, -0.5], np.float32), np.array([1, 2], np.float32))
IMAGE = (2, 12, 10)
MODULE = """
import torch
def make_policy(inputs, outputs, units=5):
    return torch.nn.Sequential(torch.nn.Linear(inputs, units), torch.nn.Tanh(), torch.nn.Linear(units, outputs))
"""
OPTIONS = {
    "mlp": {"hidden": [7]},
    "lstm": {"hidden": 5},
    "gru": {"hidden": 5},
    "elman": {"hidden": 5},
    "conv": {"convolutions": [[3, 4, 2], [4, 2, 1]], "hidden": [6], "reference": 20},
    "torch": {},
}


def torch_or_skip():
    return pytest.importorskip("torch", reason="PyTorch is not installed: pip install mpies[torch]")


@pytest.fixture
def build(tmp_path):
    def build(kind, action=BOX, **more):
        options = {**OPTIONS[kind], **more}
        if kind == "torch":
            torch_or_skip()
            (tmp_path / "own.py").write_text(MODULE)
            options["module"] = f"{tmp_path}/own.py:make_policy"
        shape = IMAGE if kind == "conv" else None
        constants = {"reference": images(20, 8).astype(np.uint8)} if kind == "conv" else None
        size = int(np.prod(IMAGE)) if kind == "conv" else 6
        return make_policy(POLICIES[kind].Options(**options), Interface(size, action, shape), constants)

    return build


def images(count, seed):
    return np.random.default_rng(seed).integers(256, size=(count, int(np.prod(IMAGE)))).astype(np.float32)


def observations(policy, steps, count):
    if policy.interface.shape:
        return np.stack([images(count, step) for step in range(steps)])
    return np.random.default_rng(3).standard_normal((steps, count, policy.interface.observation_size)).astype("f4")


def episode(policy, stack, seen, slots=None, seeds=None, actor=None):
    """Actions of members stack[slots] over the observations seen (steps, members, o), slot by slot in that order."""
    slots = np.arange(len(stack)) if slots is None else np.asarray(slots)
    chosen = aligned_stack(len(slots), policy.size)
    chosen[:] = stack[slots]
    actor = actor or policy.bind(chosen)
    for slot, member in enumerate(slots):
        actor.begin(slot, None if seeds is None else seeds[member])
    return np.stack([actor(now[slots], np.full(len(slots), step)).copy() for step, now in enumerate(seen)])


def members(policy, count=9):
    stack = aligned_stack(count, policy.size)
    stack[:] = 0.5 * np.random.default_rng(1).standard_normal(stack.shape)
    return stack


@pytest.mark.parametrize("time_input", [None, 100])
@pytest.mark.parametrize("sampling", [None, "noise", "gaussian", "softmax"])
@pytest.mark.parametrize("kind", OPTIONS)
def test_a_member_acts_the_same_in_any_company_and_on_any_lane(kind, sampling, time_input, build):
    if kind == "conv" and time_input:
        pytest.skip("images take no time")
    more = {None: {}, "noise": {"action_noise": 0.1}, "gaussian": {"sampling": "gaussian"}}.get(
        sampling, {"sampling": "softmax", "bins": "uniform:5"}
    )
    policy = build(kind, time_input=time_input, **more)
    stack, seen, seeds = members(policy), observations(policy, 5, 9), np.arange(9) * 7
    together = episode(policy, stack, seen, seeds=seeds)
    for slots in ([4], [8, 0], [3, 2, 1, 0, 4]):
        assert np.array_equal(episode(policy, stack, seen, slots, seeds), together[:, slots])


@pytest.mark.parametrize("kind", OPTIONS)
def test_nothing_leaks_from_one_episode_into_the_next(kind, build):
    policy = build(kind, action_noise=0.1)
    stack, seen = members(policy), observations(policy, 5, 9)
    actor = policy.bind(stack)
    first = episode(policy, stack, seen, seeds=range(9), actor=actor)
    episode(policy, stack, seen[::-1], seeds=range(50, 59), actor=actor)
    assert np.array_equal(episode(policy, stack, seen, seeds=range(9), actor=actor), first)


@pytest.mark.parametrize("kind", OPTIONS)
def test_states_move_with_their_lane(kind, build):
    policy = build(kind, action_noise=0.1)
    stack, seen = members(policy), observations(policy, 6, 9)
    expected = episode(policy, stack, seen, seeds=range(9))
    actor = policy.bind(stack)
    for slot in range(9):
        actor.begin(slot, slot)
    for now in seen[:3]:
        actor(now)
    for values in (stack, *actor.states):
        values[2] = values[8]
    order = [0, 1, 8, 3, 4, 5, 6, 7]
    found = np.stack([actor(now[order]).copy() for now in seen[3:]])
    assert np.array_equal(found, expected[3:, order])


@pytest.mark.parametrize("kind", OPTIONS)
def test_first_parameters_belong_to_the_seed_and_use_all_of_the_vector(kind, build):
    policy = build(kind)
    one, same, other = policy.initial(1), policy.initial(1), policy.initial(2)
    assert one.shape == (policy.size,) and one.dtype == np.float32
    assert np.array_equal(one, same) and not np.array_equal(one, other)
    stack, seen = members(policy, 1), observations(policy, 4, 1)
    before = episode(policy, stack, seen)
    used = 0
    for number in range(0, policy.size, max(1, policy.size // 25)):
        moved = stack.copy()
        moved[0, number] += 1
        used += not np.array_equal(episode(policy, moved, seen), before)
    assert used > 12  # ReLUs and clipping hide some


def test_noise_is_the_seeds_and_none_without_one(build):
    policy = build("mlp", action_noise=0.2, hidden=[])
    stack, seen = members(policy, 2), observations(policy, 200, 2)
    stack[:] = 0
    silent, heard = episode(policy, stack, seen), episode(policy, stack, seen, seeds=[1, 2])
    assert not silent.any()
    assert heard.std() == pytest.approx(0.2, rel=0.15)
    assert abs(np.corrcoef(heard[:, 0, 0], heard[:, 1, 0])[0, 1]) < 0.3


def test_noise_is_added_to_values_that_were_chosen(build):
    policy = build("mlp", action_noise=0.2, hidden=[], bins="custom:-0.5,0.5")
    stack, seen = members(policy, 2), observations(policy, 200, 2)
    chosen, heard = episode(policy, stack, seen), episode(policy, stack, seen, seeds=[1, 2])
    assert set(chosen.ravel()) == {-0.5, 0.5}
    assert (heard - chosen)[..., 0].std() == pytest.approx(0.2, rel=0.15)
    assert (heard >= BOX.low).all() and (heard <= BOX.high).all()


@pytest.mark.parametrize(
    ("action", "options", "message"),
    [
        (Discrete(3), {"action_noise": 0.1}, "for continuous actions, but these are discrete"),
        (BOX, {"action_noise": 0.1, "sampling": "gaussian"}, "exclude each other"),
        (BOX, {"action_noise": 0.1, "sampling": "softmax", "bins": "uniform:5"}, "exclude each other"),
    ],
)
def test_noise_that_would_not_be_heard_is_refused(action, options, message, build):
    with pytest.raises(PolicyProblem, match=message):
        build("mlp", action, **options)


def test_softmax_draws_as_often_as_it_should(build):
    policy = build("mlp", Discrete(3), sampling="softmax", hidden=[])
    stack, seen = members(policy, 1), np.zeros((4000, 1, 6), "f4")
    stack[:] = 0
    stack[0, -3:] = np.log([0.2, 0.5, 0.3])
    counts = np.bincount(episode(policy, stack, seen, seeds=[5])[:, 0], minlength=3) / 4000
    np.testing.assert_allclose(counts, [0.2, 0.5, 0.3], atol=0.03)
    assert set(episode(policy, stack, seen)[:, 0]) == {1}  # the most likely


def test_gaussian_has_a_learnt_deviation_for_each_number(build):
    policy = build("mlp", Continuous(np.full(2, -9, "f4"), np.full(2, 9, "f4")), sampling="gaussian", hidden=[])
    stack, seen = members(policy, 1), np.zeros((4000, 1, 6), "f4")
    stack[:] = 0
    stack[0, -2:] = np.log([0.5, 2.0])
    np.testing.assert_allclose(episode(policy, stack, seen, seeds=[5]).std(axis=(0, 1)), [0.5, 2.0], rtol=0.1)


def test_bins_are_values_between_the_bounds_or_ones_own(build):
    for bins, values in [
        ("uniform:4", np.linspace(BOX.low, BOX.high, 4)),
        ("custom:-0.5,0,1", [[-0.5] * 2, [0] * 2, [1] * 2]),
    ]:
        policy = build("mlp", bins=bins)
        acted = episode(policy, members(policy), observations(policy, 20, 9)).reshape(-1, 2)
        for number in range(2):
            assert set(acted[:, number].tolist()) <= {np.float32(value[number]).item() for value in values}
            assert len(set(acted[:, number].tolist())) > 1


@pytest.mark.parametrize("kind", ["lstm", "gru", "elman"])
def test_recurrent_units_are_those_of_pytorch(kind, build):
    torch = torch_or_skip()
    policy = build(kind, Continuous(np.full(2, -99, "f4"), np.full(2, 99, "f4")))
    stack, seen = members(policy, 1), observations(policy, 30, 1)
    across, along, bias, *more, out, out_bias = (torch.from_numpy(view[0].copy()) for view in policy.views(stack))
    units = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "elman": torch.nn.RNN}[kind](6, 5)
    with torch.no_grad():
        units.weight_ih_l0[:], units.weight_hh_l0[:], units.bias_ih_l0[:] = across.T, along.T, bias
        units.bias_hh_l0[:] = 0
        if more:
            units.bias_hh_l0[10:] = more[0]
        expected = units(torch.from_numpy(seen))[0] @ out + out_bias
    np.testing.assert_allclose(episode(policy, stack, seen), expected.numpy(), atol=1e-5)


def test_convolutions_are_those_of_pytorch(build):
    torch = torch_or_skip()
    wide = Continuous(np.full(2, -999, "f4"), np.full(2, 999, "f4"))
    policy = build("conv", wide, activation="tanh")
    stack, seen = members(policy, 1), observations(policy, 6, 1)
    views = [torch.from_numpy(view[0].copy()) for view in policy.views(stack)]
    reference = torch.from_numpy(policy.constants["reference"].astype("f4")).reshape(-1, *IMAGE) / 255
    x = torch.from_numpy(seen[:, 0]).reshape(-1, *IMAGE) / 255

    def normalise(y, r, shift, scale):
        axes = [axis for axis in range(r.ndim) if axis != 1]
        form = [1, -1] + [1] * (r.ndim - 2)
        mean, deviation = r.mean(axes).reshape(form), (r.var(axes, correction=0) + 1e-5).sqrt().reshape(form)
        return [torch.tanh((v - mean) / deviation * scale.reshape(form) + shift.reshape(form)) for v in (y, r)]

    for number, (size, stride, channels) in enumerate([(4, 2, 2), (2, 1, 3)]):
        weights, shift, scale = views[3 * number : 3 * number + 3]
        kernel = weights.T.reshape(-1, size, size, channels).permute(0, 3, 1, 2)
        y, r = (torch.nn.functional.conv2d(v, kernel, stride=stride) for v in (x, reference))
        x, reference = normalise(y, r, shift, scale)
    x, reference = (v.permute(0, 2, 3, 1).flatten(1) @ views[6] for v in (x, reference))
    x, _ = normalise(x, reference, views[7], views[8])
    np.testing.assert_allclose(episode(policy, stack, seen)[:, 0], (x @ views[9] + views[10]).numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "action", "more", "said"),
    [
        ("mlp", Discrete(3), {"bins": "uniform:3"}, "policy.bins is for continuous actions"),
        ("mlp", Discrete(3), {"sampling": "gaussian"}, "not for discrete actions; use softmax"),
        ("mlp", BOX, {"sampling": "softmax"}, "not for continuous actions; use gaussian"),
        ("mlp", Continuous(*(np.full(1, v, "f4") for v in (-np.inf, np.inf))), {"bins": "uniform:3"}, "bounded"),
        ("conv", BOX, {"convolutions": [[3, 13, 2]]}, "size 13 does not fit into 12 x 10 pixels"),
        ("torch", BOX, {"kwargs": {"units": "many"}}, "raises TypeError"),
    ],
)
def test_what_does_not_fit_is_said(kind, action, more, said, build):
    with pytest.raises(PolicyProblem, match=said):
        build(kind, action, **more)


@pytest.mark.parametrize("bins", ["uniform", "uniform:1", "uniform:x", "custom:", "custom:1", "custom:1,nan", "3"])
def test_bins_that_are_none_are_refused(bins):
    with pytest.raises(ConfigError, match=r"policy\.bins must be uniform:N or custom:v1,v2"):
        validate_config({"environment": {"id": "Pendulum-v1"}, "policy": {"bins": bins}}, "x")


def test_images_want_their_own_policy(build):
    with pytest.raises(PolicyProblem, match=r"images of shape .* use kind: mlp"):
        make_policy(POLICIES["conv"].Options(), Interface(6, BOX), {})


CONFIG = """
environment: {id: Pendulum-v1, hide: [2], max_steps: 30}
policy: {kind: gru, hidden: 4, action_noise: 0.05}
solver: {population: 8, sigma: 0.1}
noise: {size: 100000}
evaluation: {every: 1, episodes: 3}
stop: {generations: 2}
"""


def test_a_run_begins_where_another_ended_and_needs_its_file_no_more(run_mpies, write_config, tmp_path):
    config = write_config(CONFIG)
    assert run_mpies(0, "train", config, "--out", "first").code == 0
    before = hdf5.read(tmp_path / "first" / "policy.h5")[0]
    more = ["train", config, "--out", "second", "policy.init_from=first/policy.h5"]
    assert run_mpies(0, *more, "stop.generations=1").code == 0
    begun = hdf5.read(tmp_path / "second" / "checkpoints" / "generation-00000000.h5")[0]
    assert np.array_equal(begun["solver/mean"], before["parameters"])
    assert np.array_equal(begun["normalizer/total"], before["normalizer/total"]) and begun["normalizer/count"] > 0
    (tmp_path / "first" / "policy.h5").unlink()
    ended = run_mpies(0, *more)
    assert ended.code == 0, ended.stderr
    assert len(read_metrics(tmp_path / "second")) == 2
    refused = run_mpies(0, *more[:3], "third", "policy.init_from=second", "policy.hidden=5")
    assert refused.code == 2 and refused.stderr.count("\n") == 1, refused.stderr
    assert "policy.init_from: second has 93 parameters, but this policy has 131; take the same" in refused.stderr
    assert run_mpies(0, "play", "second", "--member", "2,3").code == 0


def test_the_page_on_policies_shows_a_module_that_works(run_mpies, write_config, tmp_path):
    torch_or_skip()
    page = (Path(__file__).resolve().parents[2] / "docs" / "policies.md").read_text()
    (tmp_path / "my_policy.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    line = next(line for line in page.splitlines() if "my_policy.py:make_policy" in line)
    ended = run_mpies(0, "train", write_config(CONFIG.replace(CONFIG.splitlines()[2], line.strip())), "--out", "run")
    assert ended.code == 0, ended.stderr
    assert run_mpies(0, "evaluate", "run", "--episodes", "2").code == 0
