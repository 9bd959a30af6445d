"""Which environment an id names, and in which line one is refused: make_env and make_function_env."""

import sys

import numpy as np
import pytest

from mpies.envs import CARRY_HISTORY, NO_HISTORY, ONE_AT_A_TIME, EnvironmentProblem, make_env, make_function_env
from mpies.envs.build_errors import missing_package, suggest_ids


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


NOTHING = ("", "no/such-v0", "nomodule_at_all:Thing-v0", "a:b:c", ":Thing", "CartPole-v99")
NO_DICT = "the observation of CartPole-v1 is a Box, not a Dict"
NO_WEIGHT = "AntBulletEnv-v0: kwargs.electricity_cost must be a finite number"
BULLET = "CartPoleBulletEnv-v1"
GAMES = {"TicTacToe-v1": 2, "KuhnPoker-v1": 2, "SparrowMahjong-v1": 3}
# The package that is needed, id, arguments of make_env, and what is said.
REFUSED = [
    ("gymnasium", "LunarLandr-v3", {}, "did you mean .*LunarLander-v3"),
    ("envpool", "LunarLandr-v3", {"backend": "envpool"}, "did you mean .*LunarLander-v3"),
    ("gymnasium", "some/path:Thing", {}, "^some/path:Thing: name a file.* as in some/path.py:Thing$"),
    *(("gymnasium", name, {}, f"^(environment.id {name!r} |{name} |{name}:)") for name in NOTHING),
    ("gymnasium", "CartPole-v1", {"backend": "gymnasium", "colour": "red"}, "CartPole-v1.*colour"),
    ("gymnasium", "CartPole-v1", {"backend": "gymnasium", "observations": ["state"]}, NO_DICT),
    ("envpool", "CartPole-v1", {"backend": "envpool", "colour": "red"}, "CartPole-v1.*colour"),
    ("envpool", "CartPole-v1", {"backend": "envpool", "observations": ["state"]}, NO_DICT),
    ("gymnasium", "tests.envs.rover:Rover", {"observations": ["lamp"]}, "Rover has no part 'lamp', only 'charge', 'g"),
    ("envpool", "Pong-v5", {"blocks": 16}, "'Pong-v5' is not known .*; its name in gymnasium is ALE/Pong-v5"),
    *(("envpool", name, {}, f"^{name} is a game of {players} players") for name, players in GAMES.items()),
    *(("envpool", name, {}, f"^{name} of EnvPool crashes when it is built") for name in ("Cig-v1", "MultiDuel-v1")),
    *(
        ("envpool", "CartPole-v1", {"max_steps": 2**n}, f"_steps={2**n}: a number is too large.*max_s")
        for n in (31, 99)
    ),
    ("mujoco", "Hopper-v5", {"backend": "mujoco", "xml_file": "/absent.xml"}, r"absent\.xml"),
    ("mujoco", "CartPole-v1", {"backend": "mujoco"}, "CartPole-v1 is not one of mujoco's: HalfCheetah-v5, Swimmer"),
    *(("pybullet", "AntBulletEnv-v0", {"electricity_cost": one}, NO_WEIGHT) for one in ("much", float("nan"))),
    ("pybullet", BULLET, {"electricity_cost": 0.0}, f"{BULLET} does not accept .*electricity_cost"),
    ("pybullet", "gym:AntBuletEnv-v0", {}, "did you mean AntBulletEnv-v0"),
]


@pytest.mark.parametrize(("needed", "environment_id", "arguments", "message"), REFUSED)
def test_what_cannot_be_made_is_refused_in_one_line(needed, environment_id, arguments, message):
    pytest.importorskip(needed)
    with pytest.raises(EnvironmentProblem, match=message) as caught:
        make_env(environment_id, **arguments)
    assert "\n" not in str(caught.value)


def test_at_most_two_ids_are_suggested():
    known = ["Ant-v5", "Pusher-v5", "LunarLander-v3", "LunarLander-v2", "LunarLander-v1"]
    assert suggest_ids("LunarLandr-v3", known) == "; did you mean LunarLander-v3 or LunarLander-v2?"
    assert suggest_ids("Ant-v4", known) == "; did you mean Ant-v5?"
    assert suggest_ids("nonsense", known) == suggest_ids("Pong-v5", known) == ""  # names count, not versions


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ModuleNotFoundError("No module named 'cv2'"), r"Some-v0 needs .*mpies\[atari\]"),
        (ImportError("No module named 'quux'"), r"Some-v0 needs .*\(No module named 'quux'\); install the package"),
    ],
)
def test_a_missing_package_names_the_extra_that_installs_it(error, message):
    with pytest.raises(EnvironmentProblem, match=message):
        raise missing_package("Some-v0", error)


@pytest.mark.parametrize(
    ("package", "environment_id", "backend", "message"),
    [
        ("Box2D", "LunarLander-v3", "gymnasium", r'LunarLander-v3.*pip install "mpies\[box2d\]"'),
        ("mujoco", "Hopper-v5", "mujoco", r'Hopper-v5 needs a package .*; pip install "mpies\[mujoco\]"'),
    ],
)
def test_an_environment_whose_package_is_missing_names_the_extra(
    package, environment_id, backend, message, monkeypatch
):
    monkeypatch.setitem(sys.modules, package, None)
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(EnvironmentProblem, match=message):
        make_env(environment_id, backend)


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
