"""A small policy of every kind, and what acts and is seen in the tests of policies."""

from contextlib import closing

import numpy as np
import pytest

from mpies.config.loading import validate_config
from mpies.envs.base import Continuous, Interface
from mpies.policies import POLICIES, make_policy
from mpies.policies.exported import aligned_stack
from mpies.runs.formats import hdf5
from mpies.training.task import Task
from tests.support import describe_config


def box(low, high, count):
    """An action of so many numbers between these bounds: of each, or of all."""
    return Continuous(np.full(count, low, np.float32), np.full(count, high, np.float32))


BOX = box([-1, -0.5], [1, 2], 2)
WIDE = box(-999, 999, 2)  # nothing is clipped
IMAGE = (2, 12, 10)
MODULE = """
import torch
def make_policy(inputs, outputs, units=5):
    return torch.nn.Sequential(torch.nn.Linear(inputs, units), torch.nn.Tanh(), torch.nn.Linear(units, outputs))
"""
# A run of two generations; its policy is to be added.
PENDULUM = """
environment: {id: Pendulum-v1, max_steps: 30}
solver: {population: 8, sigma: 0.1}
noise: {size: 100000}
evaluation: {every: 1, episodes: 3}
stop: {generations: 2}
"""
OPTIONS = {
    "mlp": {"hidden": [7]},
    "lstm": {"hidden": 5},
    "gru": {"hidden": 5},
    "elman": {"hidden": 5},
    "conv": {"convolutions": [[3, 4, 2], [4, 2, 1]], "hidden": [6], "reference": 20},
    "torch": {},
}


def torch_or_skip():
    return pytest.importorskip("torch", reason="PyTorch is not installed: pip install mpies[torch]")


def build_policy(kind, folder, action=BOX, **more):
    """A policy of this kind for observations of 6 numbers, or images; more: options besides those above.

    folder: where the PyTorch module is written.
    """
    options = {**OPTIONS[kind], **more}
    if kind == "torch":
        torch_or_skip()
        (folder / "own.py").write_text(MODULE)
        options["module"] = f"{folder}/own.py:make_policy"
    shape = IMAGE if kind == "conv" else None
    constants = {"reference": draw_images(20, 8).astype(np.uint8)} if kind == "conv" else None
    size = int(np.prod(IMAGE)) if kind == "conv" else 6
    return make_policy(POLICIES[kind].Options(**options), Interface(size, action, shape), constants)


def draw_images(count, seed, shape=IMAGE):
    return np.random.default_rng(seed).integers(256, size=(count, int(np.prod(shape)))).astype(np.float32)


def draw_observations(policy, steps, members):
    """Observations (steps, members, o) float32."""
    if policy.interface.shape:
        return np.stack([draw_images(members, step) for step in range(steps)])
    random = np.random.default_rng(3)
    return random.standard_normal((steps, members, policy.interface.observation_size)).astype(np.float32)


def draw_members(policy, count=9, scale=0.5):
    """A stack (count, size)."""
    stack = aligned_stack(count, policy.size)
    stack[:] = scale * np.random.default_rng(1).standard_normal(stack.shape)
    return stack


def act(policy, stack, observations, slots=None, seeds=None, actor=None):
    """Actions (steps, slots, ...) of an episode in which slot k has member slots[k]; default all members.

    observations: (steps, members, o).  seeds: of each member's noise.  actor: default one for the chosen members.
    """
    slots = np.arange(len(stack)) if slots is None else np.asarray(slots)
    chosen = aligned_stack(len(slots), policy.size)
    chosen[:] = stack[slots]
    actor = actor or policy.bind(chosen)
    for slot, member in enumerate(slots):
        actor.begin(slot, None if seeds is None else seeds[member])
    steps = enumerate(observations)
    return np.stack([actor(now[slots], np.full(len(slots), step)).copy() for step, now in steps])


def save_policy(values, path, seed=2, **given):
    """Write a policy file for the values of a config.  Returns its path.

    given: parameters and normalization (2, o), the observation statistics; random by default.
    """
    config, random = validate_config(values, "test"), np.random.default_rng(seed)
    with closing(Task(config)) as task:
        size, seen, constants = task.dimension, task.observation_size, task.policy.constants if task.policy else {}
    normalization = np.stack([random.normal(size=seen), random.uniform(0.5, 2, seen)])
    arrays = {"parameters": random.normal(size=size), "normalization": normalization} | given
    arrays = {name: numbers.astype(np.float32) for name, numbers in arrays.items()}
    arrays |= {f"constants/{name}": numbers for name, numbers in constants.items()}
    path.write_bytes(hdf5.pack(arrays, {**describe_config(config), "generation": 3}))
    return path
