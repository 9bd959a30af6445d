"""The contract of worlds: an episode depends on its seed and the actions alone."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from envs import EnvironmentProblem, make_world
from envs.base import Continuous, Discrete
from mpies.communicator import Serial
from mpies.policies import MLPOptions, make_policy
from mpies.rollouts import EpisodePlayer, Session, Work, observation_record, play_alone

WORLDS = [
    ("CartPole-v1", "envpool"),
    ("CartPole-v1", "gymnasium"),
    ("Pendulum-v1", "envpool"),
    ("Pendulum-v1", "gymnasium"),
    ("LunarLander-v3", "envpool"),
    ("LunarLander-v3", "gymnasium"),
    ("BipedalWalker-v3", "envpool"),
    ("BipedalWalker-v3", "gymnasium"),  # in one object for many episodes, it remembers
]
every_world = pytest.mark.parametrize(("environment", "backend"), WORLDS)


def actions_of(world, seed, steps):
    random, action = np.random.default_rng(seed), world.interface.action
    if isinstance(action, Discrete):
        return random.integers(0, action.count, steps).astype(np.int32)
    return random.uniform(action.low, action.high, (steps, len(action.low))).astype(np.float32)


def episodes_of(world, seeds, steps=60):
    """Play episodes side by side, each with the actions of its own seed.  Returns the bytes of each."""
    batch = world.open(seeds)
    actions = [actions_of(world, seed, steps) for seed in seeds]
    seen = [batch.observations[place].tobytes() for place in range(len(seeds))]
    running = np.arange(len(seeds), dtype=np.int32)
    for step in range(steps):
        batch.send(running, np.stack([actions[place][step] for place in running]))
        observations, rewards, over = batch.receive()
        for place, observation, reward in zip(running, observations, rewards, strict=True):
            seen[place] += observation.tobytes() + np.float64(reward).tobytes()
        running = running[~over]
        if not len(running):
            break
    batch.close()
    return seen


@every_world
def test_an_episode_is_the_same_in_any_slot_in_any_company_and_after_any_history(environment, backend):
    world = make_world(environment, backend)
    alone = {seed: episodes_of(world, [seed])[0] for seed in (3, 14, 2**31 - 1)}
    assert len(set(alone.values())) == 3
    for seeds in ([14, 3], [5, 6, 3, 7, 2**31 - 1, 8, 14], [3, 3]):
        for seed, episode in zip(seeds, episodes_of(world, seeds), strict=True):
            assert episode == alone.get(seed, episode), f"seed {seed} in {seeds}"
    assert episodes_of(make_world(environment, backend), [3])[0] == alone[3]
    world.close()


def play(world, rollouts=24, sampled=None, policy_options=None):
    """Returns of members that differ, in order, and the sums of their observations."""
    policy = make_policy(policy_options or MLPOptions(hidden=[16]), world.interface)
    parameters = np.random.default_rng(1).standard_normal((rollouts, policy.size)).astype(np.float32)

    def write(rollout, out):
        out[:] = parameters[rollout]

    sampled = np.ones(rollouts, bool) if sampled is None else sampled
    work = Work(np.arange(rollouts) // 2 + 100, sampled, write, np.zeros((rollouts, 0)))
    normalization = np.stack([np.full(world.interface.observation_size, value, np.float32) for value in (0.1, 0.9)])
    player = EpisodePlayer(world, policy, 5.0)
    session = Session(work, normalization, np.arange(rollouts), Serial().tickets(rollouts))
    player.play(session)
    rows = np.sort(session.found(), order="rollout")
    observed = np.array(session.observed, observation_record(world.interface.observation_size))
    assert rows["rollout"].tolist() == list(range(rollouts))
    return rows, np.sort(observed, order="rollout"), session.failures


@every_world
def test_a_members_return_has_the_same_bits_however_a_rank_arranges_its_work(environment, backend, monkeypatch):
    expected = None
    for lanes, largest, low_water in [(64, 256, 16), (1, 1, 0), (3, 2, 1), (8, 24, 7), (5, 7, 4)]:
        world = make_world(environment, backend, max_steps=150)
        monkeypatch.setattr(world, "lanes", lanes)
        monkeypatch.setattr(world, "smallest", min(largest, 2))
        monkeypatch.setattr(world, "largest", largest)
        monkeypatch.setattr(world, "low_water", low_water)
        rows, observed, failures = play(world)
        found = rows.tobytes() + observed.tobytes()
        expected = expected or found
        assert found == expected, f"{lanes} lanes, at most {largest} at a time, low water {low_water}"
        assert play(world)[0].tobytes() == rows.tobytes(), "a second generation in the same world differs"
        assert not failures
        world.close()


def test_an_episodes_length_and_return_are_those_of_gymnasium():
    import gymnasium

    world = make_world("CartPole-v1", "gymnasium")
    rows, observed, _ = play(world, rollouts=2)
    policy = make_policy(MLPOptions(hidden=[16]), world.interface)
    parameters = np.random.default_rng(1).standard_normal((2, policy.size)).astype(np.float32)
    act = policy.bind(parameters[:1])
    environment = gymnasium.make("CartPole-v1")
    observation, total, seen = environment.reset(seed=100)[0], 0.0, []
    for _ in range(int(rows["steps"][0])):
        seen.append(np.float64(observation))
        normalized = np.clip((observation - np.float32(0.1)) / np.float32(0.9), -5, 5).astype(np.float32)
        observation, reward, terminated, truncated, _ = environment.step(int(act(normalized[None])[0]))
        total += reward
    assert terminated or truncated
    assert rows["total"][0] == total == rows["signs"][0]
    assert observed["count"][0] == len(seen)
    np.testing.assert_allclose(observed["total"][0], np.sum(seen, axis=0))
    np.testing.assert_allclose(observed["squares"][0], np.sum(np.square(seen), axis=0))


def test_only_sampled_episodes_feed_the_statistics():
    sampled = np.arange(24) % 3 == 0
    _, observed, _ = play(make_world("CartPole-v1", "envpool"), sampled=sampled)
    assert observed["rollout"].tolist() == np.flatnonzero(sampled).tolist()


@pytest.mark.parametrize("backend", ["envpool", "gymnasium"])
def test_the_time_limit_ends_an_episode(backend):
    rows, _, _ = play(make_world("Pendulum-v1", backend, max_steps=17), rollouts=4)
    assert rows["steps"].tolist() == [17] * 4


def test_auto_takes_envpool_where_it_has_the_id_and_no_kwargs_are_given():
    kinds = [
        type(make_world("CartPole-v1", "auto")).__name__,
        type(make_world("CartPole-v1", "auto", sutton_barto_reward=True)).__name__,
        type(make_world("gymnasium:CartPole-v1", "auto")).__name__,
    ]
    assert kinds == ["EnvPoolWorld", "GymnasiumWorld", "GymnasiumWorld"]


def test_interfaces_are_those_of_the_environment():
    for backend in ("envpool", "gymnasium"):
        lander, pendulum = (make_world(name, backend).interface for name in ("LunarLander-v3", "Pendulum-v1"))
        assert (lander.observation_size, lander.action) == (8, Discrete(4))
        assert isinstance(pendulum.action, Continuous)
        assert (pendulum.action.low, pendulum.action.high) == (-2, 2)


@pytest.mark.parametrize("backend", ["auto", "envpool", "gymnasium"])
def test_an_unknown_id_names_the_nearest_in_one_line(backend):
    with pytest.raises(EnvironmentProblem, match=r"did you mean .*LunarLander-v3") as caught:
        make_world("LunarLandr-v3", backend)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "environment", ["", "nonsense", "no/such-v0", "nomodule_at_all:Thing-v0", "a:b:c", "CartPole-v99"]
)
def test_every_id_that_is_none_is_said_in_one_line(environment):
    with pytest.raises(EnvironmentProblem) as caught:
        make_world(environment)
    assert "\n" not in str(caught.value)
    assert environment in str(caught.value)


@pytest.mark.parametrize("backend", ["envpool", "gymnasium"])
def test_unknown_keyword_arguments_are_said_in_one_line(backend):
    with pytest.raises(EnvironmentProblem, match="CartPole-v1") as caught:
        make_world("CartPole-v1", backend, colour="red")
    assert "\n" not in str(caught.value)


def test_a_missing_package_names_the_extra_that_brings_it(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "Box2D", None)
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(EnvironmentProblem, match=r'pip install "mpies\[box2d\]"'):
        make_world("LunarLander-v3", "gymnasium")


def test_only_the_family_of_envpool_that_is_asked_for_is_imported():
    script = """
import sys
from envs.envpool_world import EnvPoolWorld, offers
assert EnvPoolWorld("LunarLander-v3").interface.observation_size == 8
assert not offers("module:Own-v0") and "envpool.entry" not in sys.modules and "matplotlib" not in sys.modules
assert offers("MiniGrid-Empty-5x5-v0") and "envpool.entry" in sys.modules and not offers("Absent-v0")
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("backend", ["envpool", "gymnasium"])
def test_what_the_info_says_at_the_end_is_an_episodes_behaviour(backend):
    world = make_world("Hopper-v5", backend, max_steps=30)
    assert world.measure_behaviour(["x_position", "x_velocity"]) == 2
    policy = make_policy(MLPOptions(hidden=[4]), world.interface)
    parameters = np.random.default_rng(2).standard_normal((6, policy.size)).astype(np.float32)
    notes = np.zeros((6, 2))

    def write(rollout, out):
        out[:] = parameters[rollout]

    work = Work(np.arange(6), np.zeros(6, bool), write, notes, notes)
    play_alone(EpisodePlayer(world, policy, 5.0), work)
    bare, place = gymnasium.make("Hopper-v5", max_episode_steps=30), []
    for rollout in range(6):  # one by one, by gymnasium itself
        observation, _ = bare.reset(seed=rollout)
        stack = parameters[rollout : rollout + 1].copy()
        act, over = policy.bind(stack), False
        while not over:
            action = act(observation[None].astype(np.float32))[0]
            observation, _, terminated, truncated, info = bare.step(action)
            over = terminated or truncated
        place.append((info["x_position"], info["x_velocity"]))
    if backend == "gymnasium":
        assert notes.tolist() == [list(pair) for pair in place]
    assert len({tuple(row) for row in notes.tolist()}) == 6
    with pytest.raises(EnvironmentProblem, match="says no 'altitude' in its info"):
        world.measure_behaviour(["altitude"])
    world.close()
