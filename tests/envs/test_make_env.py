"""Which environment an id names: mpies.envs.make_env and make_function_env."""

import numpy as np
import pytest

from mpies.envs import (
    CARRY_HISTORY,
    NO_HISTORY,
    ONE_AT_A_TIME,
    EnvironmentProblem,
    make_env,
    make_function_env,
)


@pytest.mark.parametrize(
    ("environment_id", "options", "backend"),
    [
        ("CartPole-v1", {}, "envpool"),
        ("CartPole-v1", {"sutton_barto_reward": True}, "gymnasium"),  # kwargs are gymnasium's
        ("CartPole-v1", {"backend": "gymnasium"}, "gymnasium"),
        ("gymnasium:CartPole-v1", {}, "gymnasium"),
        ("gymnasium:CartPole-v1", {"backend": "envpool"}, "gymnasium"),
        ("LQR-v0", {}, "gymnasium"),
        ("CartPoleBulletEnv-v1", {}, "gym"),
        ("mpies.envs.lqr:LQR", {}, "your own"),
    ],
)
def test_an_id_finds_its_backend(environment_id, options, backend):
    pytest.importorskip({"envpool": "envpool", "gym": "pybullet"}.get(backend, "gymnasium"))
    env = make_env(environment_id, **options)
    assert env.backend == backend
    env.close()


@pytest.mark.parametrize("backend", ["auto", "envpool", "gymnasium"])
def test_an_unknown_id_suggests_the_nearest_in_one_line(backend):
    if backend == "envpool":
        pytest.importorskip("envpool")
    with pytest.raises(EnvironmentProblem, match=r"did you mean .*LunarLander-v3") as caught:
        make_env("LunarLandr-v3", backend)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "environment_id", ["", "nonsense", "no/such-v0", "nomodule_at_all:Thing-v0", "a:b:c", "CartPole-v99"]
)
def test_an_id_that_names_nothing_is_refused_in_one_line(environment_id):
    with pytest.raises(EnvironmentProblem) as caught:
        make_env(environment_id)
    assert "\n" not in str(caught.value)
    names = f"environment.id {environment_id!r} ", f"{environment_id} ", f"{environment_id}:"
    assert str(caught.value).startswith(names)


@pytest.mark.parametrize("backend", ["envpool", "gymnasium"])
def test_unknown_kwargs_are_refused_in_one_line(backend):
    pytest.importorskip(backend)
    with pytest.raises(EnvironmentProblem, match=r"CartPole-v1.*colour") as caught:
        make_env("CartPole-v1", backend, colour="red")
    assert "\n" not in str(caught.value)


def test_a_known_environment_is_rebuilt_only_if_it_carries_history(monkeypatch):
    monkeypatch.setattr("mpies.envs.gymnasium_env.carries_history", lambda env: pytest.fail("it was probed"))
    monkeypatch.setattr("mpies.envs.CARRY_HISTORY", {"Pendulum-v1"})
    assert NO_HISTORY.isdisjoint(CARRY_HISTORY)
    for environment_id, count in [("CartPole-v1", 1), ("Pendulum-v1", 0)]:
        env = make_env(environment_id, "gymnasium")
        taken = env.take()
        env.give_back(taken[0], 1)
        assert (env.take()[0] is taken[0]) == bool(count), environment_id


def test_environments_that_share_a_simulator_are_played_one_at_a_time(monkeypatch):
    assert "KukaBulletEnv-v0" in ONE_AT_A_TIME
    monkeypatch.setattr("mpies.envs.ONE_AT_A_TIME", {"CartPole-v1"})
    env = make_env("CartPole-v1", "gymnasium")
    assert (env.slots, env.smallest, env.largest, env.low_water) == (1, 1, 1, 0)
    assert make_env("Pendulum-v1", "gymnasium").slots > 1


def test_a_function_is_a_test_function_or_the_users(here):
    (here / "own.py").write_text("def total(x): return x.sum()")
    offset, parameters = np.array([1.0, 2.0]), np.array([4, 6], np.float32)
    assert make_function_env("sphere", 2, offset).value(parameters) == -25
    assert make_function_env("own.py:total", 2, offset).value(parameters) == 7
    with pytest.raises(EnvironmentProblem, match=r"there is no file other\.py"):
        make_function_env("other.py:total", 2, offset)
