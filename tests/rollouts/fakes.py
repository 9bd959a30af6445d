"""A made-up environment, parameters and population for the tests of rollouts."""

import itertools

import numpy as np

from mpies.envs.base import Discrete, EpisodeBatch, Interface, VectorEnv
from mpies.policies import make_policy
from mpies.policies.mlp import MLPOptions
from mpies.rollouts.batch import RolloutBatch

INTERFACE = Interface(1, Discrete(2))
POLICY = make_policy(MLPOptions(hidden=[]), INTERFACE)


def write_number(rollout, out):
    """Parameters that are all the number of the rollout; the payload is ten times it."""
    out[:] = rollout
    return (10.0 * rollout,)


class CountingBatch(EpisodeBatch):
    def __init__(self, env, seeds):
        self.env, self.seeds = env, list(seeds)
        self.observations = np.array(seeds, np.float32)[:, None]
        self.steps = np.zeros(len(seeds), int)
        self.failures, self.behaviours, self.is_closed = {}, {}, False

    def send(self, places, actions):
        assert not self.is_closed
        self.places = places.copy()

    def receive(self):
        self.env.steps_played += len(self.places)
        self.steps[self.places] += 1
        steps, seeds = self.steps[self.places], np.array(self.seeds)[self.places]
        rewards = np.where(steps % 2 == 1, 2.0, -0.5)
        return np.stack([seeds + steps], axis=1).astype(np.float32), rewards, steps == seeds

    def close(self):
        assert not self.is_closed
        self.is_closed = True


class CountingEnv(VectorEnv):
    """An episode takes as many steps as its seed says; rewards are 2, -0.5, 2, ...; observations seed, seed + 1, ...

    batches: all that were opened.  is_training: of each.
    """

    interface, backend = INTERFACE, "made up"

    def __init__(self, slots=4, smallest=1, largest=3, low_water=2, divisor=1):
        self.slots, self.smallest, self.largest = slots, smallest, largest
        self.low_water, self.divisor = low_water, divisor
        self.batches, self.is_training, self.steps_played = [], [], 0

    def open(self, seeds, is_training=False):
        self.batches.append(CountingBatch(self, seeds))
        self.is_training.append(is_training)
        return self.batches[-1]


def total_of(length):
    """The return of an episode of so many steps."""
    return 2.0 * -(-length // 2) - 0.5 * (length // 2)


def make_batch(lengths, **values):
    """A RolloutBatch of CountingEnv, none of which feeds the statistics."""
    values.setdefault("sampled", np.zeros(len(lengths), bool))
    return RolloutBatch(np.array(lengths, np.int64), write_number, **values)


def true_after(calls):
    """A function without arguments that returns False until it has been called so many times."""
    count = itertools.count()
    return lambda: next(count) >= calls
