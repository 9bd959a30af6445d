"""Environments outside EnvPool give the same bits on any number of ranks."""

import pytest

import mpies
from mpies.launch.train_again import verify_ranks
from mpies.runs.metrics import read_digests

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


SMOOTH = """
import gymnasium, numpy as np
class Smooth(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    def reset(self, seed=None, options=None):
        self.random = np.random.default_rng(seed)
        self.last, self.left = np.zeros(1, np.float32), 3 + int(seed % 20)
        return self.random.uniform(-1, 1, 1).astype(np.float32), {}
    def step(self, action):
        cost = float(((action - self.last) ** 2).sum())
        self.last, self.left = action, self.left - 1
        return self.random.uniform(-1, 1, 1).astype(np.float32), -cost, self.left == 0, False, {}
class Copies(Smooth):
    def step(self, action):
        return super().step(action.copy())
"""


def test_an_environment_may_keep_its_actions(tmp_path, monkeypatch):
    (tmp_path / "smooth.py").write_text(SMOOTH)
    monkeypatch.chdir(tmp_path)
    config = {
        "policy": {"hidden": [8]},
        "solver": {"population": 32},
        "noise": {"size": 1000},
        "stop": {"generations": 2},
    }
    found = set()
    for name, ranks in (("Smooth", None), ("Smooth", 3), ("Copies", None)):
        out = f"{name}-{ranks}"
        values = config | {"environment": {"id": f"smooth.py:{name}"}}
        mpies.train(values, "evaluation.episodes=2", out=out, ranks=ranks, progress=False)
        found.add(tuple(read_digests(tmp_path / out)))
    assert len(found) == 1
