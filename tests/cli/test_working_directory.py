"""Commands that read files after a user's environment has changed the working directory."""

import pytest
import yaml

CONFIG = """
environment: {id: "own.py:Leaving", max_steps: 3}
policy: {hidden: []}
solver: {population: 8}
noise: {size: 10000}
evaluation: {every: 2, episodes: 3}
stop: {generations: 4}
"""
OWN = """
import os
import gymnasium, numpy as np

class Leaving(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    def __init__(self, render_mode=None):
        os.makedirs("elsewhere", exist_ok=True)
        os.chdir("elsewhere")
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}
    def step(self, action):
        return self.np_random.random(2).astype(np.float32), float(action[0]), False, False, {}
    def render(self):
        return np.zeros((16, 16, 3), np.uint8)
"""


@pytest.fixture
def train(tmp_path, write_config, run_mpies):
    """Train CONFIG with a seed, in the run of that name."""
    (tmp_path / "own.py").write_text(OWN)
    config = write_config(CONFIG)
    return lambda seed: run_mpies(0, "train", config, f"seed={seed}", "--out", f"runs/{seed}")


def test_a_report_with_a_video_is_written(train, run_mpies, tmp_path):
    pytest.importorskip("imageio_ffmpeg")
    assert train(1).code == 0
    ended = run_mpies(0, "report", "runs/1", "--video")
    assert ended.code == 0, ended.stderr
    assert ended.stdout == "runs/1/report.html\n"
    assert "video.mp4: an episode" in (tmp_path / "runs/1/report.html").read_text()


def test_the_trajectories_of_several_runs_are_drawn(train, run_mpies):
    assert train(1).code == train(2).code == 0
    ended = run_mpies(0, "plot", "runs/1", "runs/2", "--trajectory", "--grid", 3, "--episodes", 1)
    assert ended.code == 0, ended.stderr
    names = "trajectory.png", "landscape.png"
    assert ended.stdout.splitlines() == [f"runs/{run}/{name}" for run in (1, 2) for name in names]


def test_the_plot_of_simulate_is_where_it_was_asked_for(run_mpies, write_config, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    task = {"environment": "own.py:Leaving", "parameters": 6, "rows": 4, "episodes": 8, "seconds": 0.1}
    write_config(yaml.safe_dump({"machine": {}, "task": task}), "constants.yaml")
    words = "simulate", write_config(CONFIG), "--constants", "constants.yaml", "--ranks", 1, "--plot", "scaling.png"
    ended = run_mpies(0, *words)
    assert ended.code == 0, ended.stderr
    assert (tmp_path / "scaling.png").exists()
