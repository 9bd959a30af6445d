"""Environments outside EnvPool give the same bits on any number of ranks."""

import pytest

from mpies.tools.verify import verify_ranks

CONFIG = """
environment: {{id: {}, max_steps: 30}}
policy: {{hidden: []}}
solver: {{population: 8}}
noise: {{size: 400000}}
evaluation: {{episodes: 1}}
"""


@pytest.mark.parametrize("environment_id", ["AntBulletEnv-v0", "CartPoleSwingUp-v0"])
def test_a_generation_has_the_same_digest_on_one_and_two_ranks(environment_id, write_config):
    if "Bullet" in environment_id:
        pytest.importorskip("pybullet", reason="pybullet is not installed")
    assert verify_ranks(write_config(CONFIG.format(environment_id)), [1, 2], 1, [])
