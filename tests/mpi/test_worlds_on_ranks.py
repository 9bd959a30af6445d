"""The worlds beside EnvPool's give the same bits on any number of ranks; benchmarks/every_environment.py has all."""

import pytest

from benchmarks.every_environment import verify


@pytest.mark.parametrize("environment", ["AntBulletEnv-v0", "CartPoleSwingUp-v0"])
def test_a_generation_has_the_same_digest_on_one_and_two_ranks(environment):
    pytest.importorskip("pybullet", reason="pybullet is not installed")
    assert verify(environment)
