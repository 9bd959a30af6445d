"""Atari games as the means of blocks of pixels, and as the memory of the console."""

import re
from unittest import mock

import gymnasium
import numpy as np
import pytest

from mpies.envs import EnvironmentProblem, make_env
from mpies.envs.atari import AtariBlocks
from mpies.envs.base import Discrete
from mpies.envs.gymnasium_registry import make
from tests.envs.episodes import play

gymnasium.register_envs(pytest.importorskip("ale_py"))


def test_an_observation_has_the_means_of_the_frame_before_and_of_the_newest_one():
    game = make("ALE/Pong-v5", blocks=16)
    first, _ = game.reset(seed=3)
    np.testing.assert_array_equal(first[:130], first[130:])  # 13 x 10 blocks
    newest = first[130:]
    for action in (2, 2, 2, 3):
        observation, *_ = game.step(action)
        np.testing.assert_array_equal(observation[:130], newest)
        image = np.zeros((210, 160), np.uint8)
        game.unwrapped.ale.getScreenGrayscale(image)
        newest = observation[130:]
        means = image[: 13 * 16].reshape(13, 16, 10, 16).mean(axis=(1, 3))
        assert newest.reshape(13, 10) == pytest.approx(means)
    assert len(np.unique(newest)) > 10


def test_the_memory_of_the_console_is_what_is_observed():
    game = make("ALE/Pong-v5", obs_type="ram")
    first, _ = game.reset(seed=3)
    assert first.dtype == np.float32 and first.shape == (128,)
    observation = game.step(2)[0]
    np.testing.assert_array_equal(observation, game.unwrapped.ale.getRAM())
    assert (observation != first).any()


@pytest.mark.parametrize(
    ("name", "kwargs", "size"),
    [
        ("envpool:Pong-v5", {"obs_type": "ram"}, 128),
        ("gymnasium:ALE/Pong-v5", {"blocks": 16, "repeat_action_probability": 0.25}, 2 * 13 * 10),
    ],
)
def test_an_episode_is_a_function_of_its_seed(name, kwargs, size):
    pytest.importorskip(name.partition(":")[0])
    env = make_env(name, **kwargs)
    assert env.interface.observation_size == size and env.interface.shape is None
    (expected, other), (found,) = play(env, [5, 6], steps=50, action=2), play(env, [5], steps=50, action=2)
    np.testing.assert_array_equal(found.observations, expected.observations)
    assert (other.observations != expected.observations).any()
    assert expected.observations.min() >= 0 and expected.observations.max() > 100
    env.close()


def test_frame_skip_and_the_time_limit_hold():
    quick, slow = make("ALE/Pong-v5", 7, blocks=8, frame_skip=2), make("ALE/Pong-v5", blocks=8, frame_skip=6)
    assert quick.spec.max_episode_steps is not None
    for game in (quick, slow):
        game.reset(seed=1)
    soon, late = ([game.step(2) for _ in range(6)] for game in (quick, slow))
    assert not any(cut for *_, cut, _ in soon + late)
    assert (soon[-1][0] != late[-1][0]).any()
    assert quick.step(2)[3]


def test_rows_are_those_that_count():
    field, whole = make("ALE/Pong-v5", blocks=2, rows=[34, 195]), make("ALE/Pong-v5", blocks=2)
    seen, _ = field.reset(seed=3)
    expected, _ = whole.reset(seed=3)
    assert seen.shape == (2 * 80 * 80,)  # the last row fills no block
    np.testing.assert_array_equal(seen.reshape(2, 80, 80), expected.reshape(2, 105, 80)[:, 17:97])
    assert make("ALE/Pong-v5", blocks=16, rows=(34, 194)).observation_space.shape == (2 * 10 * 10,)


ROWS = "kwargs.rows must be the first row "
BLOCKS = "kwargs.blocks must be a whole number from 1 to 160"
ACTIONS = "kwargs.actions must be a list of the game's actions, 0 to 5, such"
PROBABILITY = "kwargs.repeat_action_probability must be a number from 0 to less"
WRONG = [
    *(({"blocks": 8, "rows": rows}, ROWS) for rows in ([-1, 100], [0, 211], [100, 107], [0.0, 210.0], 34)),
    *(({"blocks": blocks}, BLOCKS) for blocks in (0, 161, "8")),
    *(({"repeat_action_probability": one}, PROBABILITY) for one in (-0.1, 1, "0.25")),
    ({"repeat_action_probability": 1, "blocks": 8}, PROBABILITY),
    *(({"actions": actions}, ACTIONS) for actions in ([], [6], 2, ["up"])),
    ({"frameskip": 2}, "kwargs.frameskip is not for kwargs: use environment.frame_skip"),
    ({"rows": [34, 194]}, "kwargs.rows is for kwargs.blocks alone; leave it out"),
    ({"blocks": 8, "obs_type": "rgb"}, "cannot be built: TypeError: "),
]


@pytest.mark.parametrize(("kwargs", "words"), WRONG)
def test_what_makes_no_sense_is_refused(kwargs, words):
    with pytest.raises(EnvironmentProblem, match=re.escape(words)) as caught:
        make("ALE/Pong-v5", **kwargs)
    assert "but is" in str(caught.value) or words not in (ROWS, BLOCKS)


def test_sticky_actions_repeat_the_action_of_the_frame_before():
    """At a probability of 0.25, an action that alternates between steps takes over after 1 / 0.75 frames on average."""
    game = gymnasium.make("ALE/Pong-v5", frameskip=1, repeat_action_probability=0, obs_type="grayscale")
    blocks = AtariBlocks(game, 8, frames=4, repeat_probability=0.25)
    blocks.reset(seed=3)
    with mock.patch.object(game, "step", wraps=game.step) as frame:
        for step in range(150):
            blocks.step(2 + step % 2)
    found, wanted = np.array([call.args[0] for call in frame.call_args_list]), np.repeat(2 + np.arange(150) % 2, 4)
    late = found[4:] != wanted[4:]
    assert late.mean() == pytest.approx((0.25 + 0.25**2 + 0.25**3 + 0.25**4) / 4, abs=0.03)
    np.testing.assert_array_equal(found[4:][late], found[3:-1][late])


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
    few, all_of_them = make_env("ALE/Pong-v5", blocks=16, actions=[0, 2, 3]), make_env("ALE/Pong-v5", blocks=16)
    assert few.interface.action == Discrete(3) and all_of_them.interface.action == Discrete(6)
    (chosen,), (expected,) = play(few, [3], steps=20, action=1), play(all_of_them, [3], steps=20, action=2)
    np.testing.assert_array_equal(chosen.observations, expected.observations)
    assert make("ALE/Pong-v5", actions=[2, 3]).action_space.n == 2
