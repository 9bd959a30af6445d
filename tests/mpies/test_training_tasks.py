"""Changes of rewards and limits of length: of training only, the same on any number of ranks and after any resume."""

import numpy as np
import pytest

from mpies.runs.metrics import read_metrics

CONFIG = """
environment: {id: CartPole-v1, adaptive: {start: 10, threshold: 0.5, ratio: 1.5}, reward_shift: 0.25, hide: [1]}
policy: {hidden: []}
solver: {population: 16, sigma: 0.3, optimizer: {kind: adam, learning_rate: 0.2}}
noise: {size: 20000}
evaluation: {every: 3, episodes: 4}
checkpoint: {every: 4}
stop: {generations: 9}
"""


def digests(path):
    return [row["digest"] for row in read_metrics(path)]


def test_the_limit_grows_with_the_results_and_survives_a_resume_on_other_ranks(run_mpies, write_config, tmp_path):
    config = write_config(CONFIG)
    assert run_mpies(0, "train", config, "--out", "whole").code == 0
    rows = read_metrics(tmp_path / "whole")
    lengths = [float(row["length_mean"]) for row in rows]
    assert lengths[0] <= 10 < max(lengths)
    assert float(rows[0]["return_max"]) == 10 * 0.75  # the bonus is taken off in training
    assert max(float(row["eval_mean"]) for row in rows if row["eval_mean"]) > 10  # no limit, no shift
    assert run_mpies(2, "train", config, "--out", "parts", "stop.generations=6").code == 0
    assert run_mpies(0, "train", config, "--out", "parts").code == 0
    assert digests(tmp_path / "parts") == digests(tmp_path / "whole")
    assert run_mpies(0, "replay", "whole", "--generation", "7").code == 0
    assert run_mpies(0, "play", "whole", "--member", "7,3").code == 0


@pytest.mark.parametrize("reached, limit", [(7, 10), (8, 15), (16, 15)])
def test_the_limit_is_raised_where_enough_members_reach_it(reached, limit):
    from mpies.config.loading import validate_config
    from mpies.training.learner import Learner
    from mpies.training.task import Task
    from mpies.solvers import find_solver
    from mpies.solvers.base import Results

    section = {"id": "CartPole-v1", "adaptive": {"start": 10}}
    config = validate_config({"environment": section, "solver": {"population": 16}, "noise": {"size": 20000}}, "x")
    task = Task(config)
    learner = Learner(find_solver("openai_es")(config.solver, task.dimension, 1), task)
    steps = np.where(np.arange(16) < reached, 10, 9)
    learner._adapt(Results(np.zeros(16), np.zeros(16), steps, np.zeros((16, 0)), np.zeros((16, 0))))
    assert learner.limit == limit


BROKEN = """
import gymnasium, numpy, itertools
from gymnasium.spaces import Box
made = itertools.count()
class Broken(gymnasium.Env):
    observation_space = action_space = Box(-1.0, 1.0, (1,), numpy.float32)
    def __init__(self):
        if next(made) % 7 == 6:
            raise RuntimeError("no licence left")
    def reset(self, seed=None, options=None):
        self.seed = seed
        return numpy.zeros(1, numpy.float32), {}
    def step(self, action):
        if self.seed % 5 == 1:
            raise ZeroDivisionError("in step")
        reward = float("nan") if self.seed % 5 == 2 else 1.0
        return numpy.zeros(1 + (self.seed % 5 == 3), numpy.float32), reward, True, False, {}
"""


def test_whatever_fails_in_a_run_is_named_and_the_run_goes_on(run_mpies, tmp_path, write_config):
    (tmp_path / "broken.py").write_text(BROKEN)
    config = write_config(
        "environment: {id: 'broken.py:Broken', rebuild: always}\npolicy: {hidden: []}\nsolver: {population: 20}\n"
        "noise: {size: 20000}\nevaluation: {every: 0, episodes: 1}\nstop: {generations: 3, max_failures: 1.0}\n"
    )
    done = run_mpies(2, "train", config, "--out", "run")
    assert done.code == 0, done.stderr
    for said in (
        "ZeroDivisionError: in step",
        "return nan",
        "ValueError: observation has 2 numbers, 1 were promised",
        "broken.py:Broken cannot be built: RuntimeError: no licence left",
    ):
        assert any(
            "broken.py:Broken, generation" in line and ", member " in line and said in line
            for line in done.stderr.splitlines()
        ), said
    assert len(read_metrics(tmp_path / "run")) == 3
