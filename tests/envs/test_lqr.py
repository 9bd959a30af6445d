import numpy as np
import pytest
from scipy import linalg

from mpies.envs import make_env
from mpies.envs.gymnasium_registry import make
from mpies.envs.lqr import A, B, Q, R


def test_the_best_linear_policy_costs_what_the_riccati_equation_says():
    p = linalg.solve_discrete_are(A, B, Q, R)
    gain = np.linalg.solve(R + B.T @ p @ B, B.T @ p @ A)
    env, total = make_env("LQR-v0", noise=0.0, max_steps=1500), 0.0
    batch, place = env.open([5]), np.zeros(1, np.int32)
    start = x = batch.observations[0].astype(np.float64)
    over = [False]
    while not over[0]:
        batch.send(place, np.float32(-gain @ x)[None])
        observations, rewards, over = batch.receive()
        x, total = observations[0].astype(np.float64), total + rewards[0]
    assert total == pytest.approx(-start @ p @ start, rel=1e-4)


def test_the_noise_has_the_deviation_that_is_asked_for():
    def step(noise):
        environment = make_env("LQR-v0", noise=noise).take()[0]
        x = environment.reset(seed=5)[0]
        return environment.step(np.zeros(3, np.float32))[0] - A @ x

    assert step(0.0) == pytest.approx(0, abs=1e-6)
    assert step(4.0) == pytest.approx(2 * step(2.0), abs=1e-5) and np.abs(step(2.0)).min() > 1e-3


def test_max_steps_takes_the_place_of_the_environments_own_limit():
    assert make("LQR-v0").spec.max_episode_steps == 300
    assert make("LQR-v0", 7, noise=0.5).spec.max_episode_steps == 7
