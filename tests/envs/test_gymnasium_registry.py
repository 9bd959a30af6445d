"""Environments from gymnasium's registry."""

import sys

import numpy as np
import pytest

from mpies.envs import EnvironmentProblem, make_env
from mpies.envs.base import Discrete
from mpies.envs.gymnasium_registry import make
from tests.envs.episodes import play


def test_max_steps_takes_the_place_of_the_environments_own_limit():
    assert make("LQR-v0").spec.max_episode_steps == 300
    assert make("LQR-v0", 7, noise=0.5).spec.max_episode_steps == 7


def test_a_missing_package_names_the_extra_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(EnvironmentProblem, match=r'LunarLander-v3.*pip install "mpies\[box2d\]"'):
        make("LunarLander-v3")


@pytest.mark.parametrize("name", ["Pong-v5", "ALE/Pong-v5"])
def test_an_atari_game_shows_four_grey_frames(name):
    pytest.importorskip("envpool" if name == "Pong-v5" else "ale_py")
    env = make_env(name, frame_skip=3)
    assert env.interface.shape == (4, 84, 84) and env.interface.observation_size == 4 * 84 * 84
    (episode,) = play(env, [3], steps=20, action=2)  # up
    assert episode.observations.min() >= 0 and 100 < episode.observations.max() <= 255
    frames = episode.observations.reshape(-1, 4, 84, 84)
    np.testing.assert_array_equal(frames[5, 1:], frames[6, :3])
    assert (frames[0, 3] != frames[-1, 3]).any()
    (slower,) = play(make_env(name, frame_skip=2), [3], steps=20, action=2)
    assert (slower.observations[-1] != episode.observations[-1]).any()
    env.close()


def test_an_atari_game_may_be_played_with_some_of_its_actions():
    pytest.importorskip("ale_py")
    few, all_of_them = make_env("ALE/Pong-v5", blocks=16, actions=[0, 2, 3]), make_env("ALE/Pong-v5", blocks=16)
    assert few.interface.action == Discrete(3) and all_of_them.interface.action == Discrete(6)
    (chosen,), (expected,) = play(few, [3], steps=20, action=1), play(all_of_them, [3], steps=20, action=2)
    np.testing.assert_array_equal(chosen.observations, expected.observations)
    assert make("ALE/Pong-v5", actions=[2, 3]).action_space.n == 2
    few.close()
    all_of_them.close()
