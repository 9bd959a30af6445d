import numpy as np
import pytest

from mpies.envs import make_env
from tests.envs.episodes import play


def test_a_pole_without_force_hangs_and_swings_no_higher():
    (episode,) = play(make_env("CartPoleSwingUp-v0"), [1], steps=1000, action=0)
    assert len(episode.rewards) == 1000 and episode.is_over
    assert (episode.rewards < 0.2).all() and (episode.rewards > -1e-9).all()
    cosine, sine = episode.observations[:, 2], episode.observations[:, 3]
    assert np.hypot(cosine, sine) == pytest.approx(1, abs=1e-6)
    assert cosine[0] < -0.8 and cosine.max() < cosine[0] + 0.1


def test_a_constant_force_ends_the_episode_at_the_end_of_the_track():
    (episode,) = play(make_env("CartPoleSwingUp-v0"), [1], steps=1000, action=1)
    positions = np.abs(episode.observations[:, 0])
    assert len(episode.rewards) < 200 and episode.is_over
    assert positions[-1] > 2.4 >= positions[-2]
