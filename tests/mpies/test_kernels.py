"""The compiled inner loop is held against NumPy, to the bit, whatever vectors the processor has."""

from mpies.runs.metrics import read_metrics
import ctypes
import dataclasses
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from mpies.envs import make_env
from mpies.envs.base import Continuous, Discrete, Interface
from mpies.envs.envpool_env import EnvPoolEnv
from mpies import kernels
from mpies.comm.serial import Serial
from mpies.policies.exported_mlp import tanh
from mpies.policies import ACTIVATIONS, MLPOptions, aligned_stack, make_policy
from mpies.rollouts.batch import NEVER, RolloutBatch, observation_record
from mpies.rollouts.player import EpisodePlayer
from mpies.rollouts.queue import RolloutQueue

compiled = pytest.mark.skipif(not kernels.LIBRARY, reason="no C compiler when mpies was installed")
looped = pytest.mark.skipif(
    not kernels.LIBRARY or not kernels.LIBRARY.play, reason="no C compiler or Python headers when mpies was installed"
)
BOX = Continuous(np.full(3, -1e9, np.float32), np.full(3, 1e9, np.float32))
WILD = np.array([0, -0.0, 1e-45, 1e30, -1e30, np.inf, -np.inf, np.nan], np.float32)


def test_it_is_compiled_where_there_is_a_compiler():
    if shutil.which("cc") is None:
        pytest.skip("no C compiler here")
    assert kernels.LIBRARY


def networks(widths, activation="tanh", bias=True, members=5):
    """The compiled network of some members and that in NumPy, and inputs."""
    outputs = Continuous(np.full(widths[-1], -1, np.float32), np.full(widths[-1], 1, np.float32))
    options = MLPOptions(hidden=widths[1:-1], activation=activation, bias=bias)
    policy = make_policy(options, Interface(widths[0], outputs))
    random = np.random.default_rng(sum(widths))
    stack = aligned_stack(members, policy.size)
    stack[:] = random.standard_normal(stack.shape) * random.choice([0.1, 1, 4], stack.shape)
    found = policy.network(policy.views(stack))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "LIBRARY", None)
        plain = policy.network(policy.views(stack))
    assert isinstance(found, kernels.Perceptrons) and not isinstance(plain, kernels.Perceptrons)
    return found, plain, random.standard_normal((members, widths[0])).astype(np.float32)


@pytest.fixture(params=[4, 8, 16])
def slots(request, monkeypatch):
    """The widest vectors that are used, for networks of any size."""
    most, large = (ctypes.c_long.in_dll(kernels.LIBRARY, name) for name in ("mpies_lanes", "mpies_large"))
    before = most.value, large.value
    most.value, large.value = request.param, 0
    yield request.param
    most.value, large.value = before


@compiled
def test_any_number_of_units_gives_the_bits_of_numpy(slots):
    for units in (*range(1, 70), 127, 128, 129, 200, 1024):
        found, plain, inputs = networks([3, units, 1 + units % 21])
        assert found(inputs).tobytes() == plain(inputs).tobytes(), units


@compiled
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_any_activation_gives_the_bits_of_numpy(activation, bias, slots):
    found, plain, inputs = networks([24, 40, 40, 4], activation, bias)
    inputs[3:] *= 100
    for count in (1, 3, 5):
        assert found(inputs[:count]).tobytes() == plain(inputs[:count]).tobytes()
    inputs[:, :8] = WILD
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found(inputs), plain(inputs))


@compiled
def test_negative_zeros_keep_their_sign():
    found, plain, inputs = networks([3, 2], "linear")
    found._stack[:], inputs[:] = 0, -1  # products are -0.0
    np.lib.stride_tricks.as_strided(found._stack, (5, 8), (found._stack.strides[0], 4))[:, 6:] = -0.0
    assert np.signbit(found(inputs)).all() and found(inputs).tobytes() == plain(inputs).tobytes()


WILD_OUTPUTS = np.array([[1, 1, 0], [0, -0.0, 0.0], [np.nan, 2, 3], [1, np.nan, np.nan], [-np.inf, np.inf, np.inf]])


@compiled
@pytest.mark.parametrize("action", [Discrete(3), Continuous(*np.array([[-1, 0, -2], [0.5, 1, np.inf]], np.float32))])
def test_outputs_end_in_the_actions_of_numpy(action):
    policy, found = make_policy(MLPOptions(hidden=[], bias=False), Interface(3, action)), []
    for library in (kernels.LIBRARY, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernels, "LIBRARY", library)
            stack = aligned_stack(5, policy.size)
            policy.views(stack)[0][:] = WILD_OUTPUTS[:, None, :]
            act = policy.bind(stack)
            assert bool(act.compiled) == bool(library)
            with np.errstate(all="ignore"):
                found.append([act(np.tile(np.eye(3, dtype=np.float32)[0], (count, 1))).copy() for count in (5, 2)])
    for one, other in zip(*found, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@compiled
def test_a_layer_too_wide_for_it_is_left_to_numpy():
    policy = make_policy(MLPOptions(hidden=[1025]), Interface(1, BOX))
    stack = aligned_stack(1, policy.size)
    assert not isinstance(policy.network(policy.views(stack)), kernels.Perceptrons)


def test_the_hyperbolic_tangent_is_close_to_the_true_one():
    x = np.concatenate([np.linspace(-12, 12, 1_000_001), np.logspace(-30, 1, 10_001)]).astype(np.float32)
    error = np.abs(tanh(x) - np.tanh(x.astype(np.float64)))
    assert error.max() < 4.5e-7
    assert (error[x != 0] / np.abs(np.tanh(x[x != 0].astype(np.float64)))).max() < 8e-7
    assert tanh(np.array([np.inf, -np.inf], np.float32)).tolist() == pytest.approx([1, -1], abs=2e-7)
    assert np.isnan(tanh(np.array([np.nan], np.float32)))


def players(**options):
    """A player with the compiled loop, and one in NumPy."""
    env = make_env("Hopper-v5", "gymnasium")
    for library in (kernels.LIBRARY, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernels, "LIBRARY", library)
            player = EpisodePlayer(env, make_policy(MLPOptions(), env.interface), 5.0, **options)
        yield player
    env.close()


@compiled
@pytest.mark.parametrize("normalizes", [True, False])
def test_looking_gives_the_bits_of_numpy(normalizes):
    found = []
    for player in players():
        random = np.random.default_rng(1)
        player.sampled[::2] = True
        player.centres[:] = random.standard_normal(player.centres.shape)
        player.scales[:] = random.uniform(0.1, 2, player.scales.shape)
        for _ in range(3):
            player.observations[:] = 3 * random.standard_normal(player.observations.shape)
            player.observations[1, :8] = WILD
            with np.errstate(all="ignore"):
                player._look(player.env.slots - 1, normalizes)
        found.append((player.sums.copy(), player.inputs.copy()))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert found[0][0].any() and found[0][1].any() == normalizes


@compiled
@pytest.mark.parametrize("signs", [True, False])
def test_adding_up_gives_the_bits_of_numpy(signs):
    found = []
    for player in players(signs=signs):
        random, counts = np.random.default_rng(1), []
        player.limits[:] = NEVER
        player.limits[3:6], player.begun[4] = 2, 1
        for step in range(1, 5):
            player.rewards[:] = random.standard_normal(player.env.slots).astype(np.float32)
            player.rewards[: len(WILD)] = WILD if step % 2 else 0
            player.over[:] = random.random(player.env.slots) < 0.2 * (step > 2)
            with np.errstate(all="ignore"):
                counts.append(bool(player._score(player.env.slots - 1, step)))
        found.append((player.totals.copy(), player.signs.copy(), player.over.copy(), counts))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert found[0][3] == [False, True, True, True] and found[0][1].any() == signs


TYPES = {"LunarLander-v3": np.int32, "BipedalWalker-v3": np.float32, "Hopper-v5": np.float64}


def play_many(environment_id, library, **options):
    """What a player finds in a hundred episodes of thirty policies: ROLLOUT rows, observation sums, and itself."""
    pytest.importorskip("envpool")
    env = make_env(environment_id, "envpool", max_steps=120)
    policy = make_policy(MLPOptions(hidden=[8]), env.interface)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "LIBRARY", library)
        player = EpisodePlayer(env, policy, 5.0, **options)
    normals = np.random.default_rng(3).standard_normal((30, policy.size)).astype(np.float32)

    def write(rollout, out):
        out[:] = normals[rollout % 30]

    work = RolloutBatch(np.arange(100), np.arange(100) % 3 == 0, write, limit=None if options else 110)
    statistics = np.repeat(np.array([[0], [2]], np.float32), env.interface.observation_size, axis=1)
    session = RolloutQueue(work, statistics, np.arange(100), Serial().tickets(100))
    player.play(session)
    observed = np.array(session.observed, observation_record(env.interface.observation_size))
    return np.sort(session.found(), order="rollout"), np.sort(observed, order="rollout"), player


@looped
@pytest.mark.parametrize("options", [{}, {"timeout": 60}], ids=["limited", "timed"])
@pytest.mark.parametrize("environment_id", TYPES)
def test_steps_without_python_give_the_bits_of_those_with_it(environment_id, options, monkeypatch):
    calls = []
    real = kernels.Loop.__call__
    monkeypatch.setattr(kernels.Loop, "__call__", lambda *arguments: calls.append(real(*arguments)) or calls[-1])
    rows, observed, player = play_many(environment_id, kernels.LIBRARY, **options)
    assert sum(calls) == player.step and max(calls) > 1  # nothing was stepped in another way
    assert player._loop.of.send is None  # it holds on to no environment
    expected = play_many(environment_id, None, **options)
    assert len(rows) == 100 and rows["steps"].min() < rows["steps"].max()
    assert rows.tobytes() == expected[0].tobytes() and observed.tobytes() == expected[1].tobytes()


@looped
def test_what_arrives_in_another_order_finds_its_lane(monkeypatch):
    """EnvPool with several threads returns environments as they are done."""
    real = EnvPoolEnv.open

    def open_mixed(env, seeds, training=False):
        batch = real(env, seeds, training)
        receive = batch.calls.receive

        def mixed():
            state = receive()
            order = np.random.default_rng(1).permutation(len(state[batch.calls.at[3]]))
            return [part[order] if len(part) == len(order) else part for part in state]

        batch.calls = dataclasses.replace(batch.calls, receive=mixed)
        return batch

    expected = play_many("LunarLander-v3", kernels.LIBRARY)
    monkeypatch.setattr(EnvPoolEnv, "open", open_mixed)
    found = play_many("LunarLander-v3", kernels.LIBRARY)
    assert found[0].tobytes() == expected[0].tobytes() and found[1].tobytes() == expected[1].tobytes()


@looped
def test_what_is_not_what_was_expected_is_said(monkeypatch):
    real = EnvPoolEnv.open

    def open_other(env, seeds, training=False):
        batch = real(env, seeds, training)
        receive, at = batch.calls.receive, batch.calls.at[1]

        def other():
            state = receive()
            state[at] = state[at].astype(np.int64)
            return state

        batch.calls = dataclasses.replace(batch.calls, receive=other)
        return batch

    monkeypatch.setattr(EnvPoolEnv, "open", open_other)
    with pytest.raises(TypeError, match="EnvPool returned 512 bytes of type l"):
        play_many("LunarLander-v3", kernels.LIBRARY)


OTHER_PROCESSORS = {
    "without AVX-512": {"OPENBLAS_CORETYPE": "Haswell", "NPY_DISABLE_CPU_FEATURES": "X86_V4"},
    "without AVX": {"OPENBLAS_CORETYPE": "Prescott", "NPY_DISABLE_CPU_FEATURES": "X86_V4 X86_V3"},
}
WITHOUT_KERNELS = "import sys; from mpies import cli, kernels; kernels.LIBRARY = None; cli.main(sys.argv[1:])"
CONFIG = """
environment: {id: Pendulum-v1, max_steps: 40}
policy: {hidden: [16, 16]}
solver: {population: 8}
evaluation: {every: 0}
stop: {generations: 3}
"""


def test_training_gives_the_same_bits_on_other_processors_and_without_kernels(tmp_path):
    """Libraries are told to do as on a processor with fewer instructions; features that this one lacks are ignored."""
    config, digests = tmp_path / "config.yaml", {}
    config.write_text(CONFIG)
    ways = {"here": ({}, ["-m", "mpies"]), "without kernels": ({}, ["-c", WITHOUT_KERNELS])}
    ways |= {name: (environment, ["-m", "mpies"]) for name, environment in OTHER_PROCESSORS.items()}
    for name, (environment, program) in ways.items():
        command = [sys.executable, *program, "train", str(config), "--out", str(tmp_path / name)]
        subprocess.run(command, env=os.environ | environment, check=True, capture_output=True)
        digests[name] = [row["digest"] for row in read_metrics(tmp_path / name)]
    assert len(digests["here"]) == 3
    assert digests == dict.fromkeys(digests, digests["here"])
