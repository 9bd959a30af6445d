import numpy as np
import pytest

from mpies.envs import make_env
from mpies.envs.cartpole_swingup import CART_COLOUR, HEIGHT, POLE_COLOUR, WIDTH, CartPoleSwingUp
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


def test_a_frame_shows_the_pole_above_or_below_the_cart_and_both_where_they_are():
    env = CartPoleSwingUp(render_mode="rgb_array")

    def centre(frame, colour):
        """The mean of the rows and columns that have a colour, from the middle; m, to the right and upwards."""
        rows, columns = np.nonzero((frame == colour).all(axis=-1))
        return (columns.mean() - WIDTH / 2) / 100, (HEIGHT / 2 - rows.mean()) / 100

    for cart, angle, pole in ((1.0, 0.0, (1, 0.3)), (-1.0, np.pi / 2, (-0.7, 0)), (0.0, np.pi, (0, -0.3))):  # clockwise
        env._state = cart, 0.0, angle, 0.0
        frame = env.render()
        assert frame.shape == (HEIGHT, WIDTH, 3) and frame.dtype == np.uint8
        assert centre(frame, CART_COLOUR)[0] == pytest.approx(cart, abs=0.05)
        assert centre(frame, POLE_COLOUR) == pytest.approx(pole, abs=0.02)
