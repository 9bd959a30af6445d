"""A saved policy on held-out episodes."""

from pathlib import Path

import numpy as np
import yaml

from mpies import store
from mpies.config import validate
from mpies.learner import Evaluation, part
from mpies.rollouts import Work, play_alone
from mpies.task import Task

# Training evaluates at generations from 1 on; generation 0 of that stream is left for here.
HELD_OUT = 0


def find_policy(path):
    """The policy file of a run directory (the best so far, else the newest), or the file itself."""
    path = Path(path)
    if not path.is_dir():
        return path
    for name in ("best.h5", "policy.h5"):
        if (path / name).exists():
            return path / name
    raise store.StoreError(f"{path}: holds no policy yet; the first is saved at the first evaluation or checkpoint")


def load_policy(path):
    """(Config, arrays, attributes) of a policy file or of a run's best policy."""
    file = find_policy(path)
    arrays, attributes = store.read(file)
    if "parameters" not in arrays:
        raise store.StoreError(f"{file}: is not a policy; give a run directory, best.h5 or policy.h5")
    return validate(yaml.safe_load(attributes["config"]), str(file)), arrays, attributes


def evaluate_policy(path, episodes, seed=None):
    """Play `episodes` held-out episodes.  Returns a dict of what was found, ready for JSON."""
    config, arrays, attributes = load_policy(path)
    task = Task(config, part(arrays, "constants/"))
    seeds = task.evaluation_seeds(HELD_OUT, 0, episodes, seed)
    normalization = arrays["normalization"] if task.observation_size else None

    def write(rollout, out):
        out[:] = arrays["parameters"]

    work = Work(seeds, np.zeros(episodes, bool), write, np.zeros((episodes, 0)))
    rows, failures = play_alone(task.player, work, normalization)
    found = Evaluation(rows["total"], rows["steps"])
    return {
        "environment": config.environment.id,
        "policy": str(find_policy(path)),
        "generation": int(attributes["generation"]),
        "episodes": episodes,
        "mean": found.mean,
        "std": found.deviation,
        "interval": found.interval,
        "min": float(found.returns.min()),
        "max": float(found.returns.max()),
        "length": found.length,
        "failures": len(failures),
        "returns": found.returns.tolist(),
    }
