"""Random streams.  Every random number of a run comes from here.

A stream is identified by its purpose and by counters of what it belongs to, such as the generation.  It never depends
on a rank, a clock or an order of arrival, so a run draws the same numbers on any number of ranks.
"""

import numpy as np

# One number per purpose; the counters are in brackets.  Saved runs depend on the numbers: never change or reuse one.
NOISE_TABLE = 0  # (block,)
MEMBERS = 1  # (generation, batch): noise indices
EPISODES = 2  # (generation, batch): environment seeds of training episodes
EVALUATION = 3  # (generation, attempt): environment seeds of held-out episodes
INITIAL_MEAN = 4  # (): first parameters
STATISTICS = 5  # (generation, batch): which episodes contribute to the observation statistics
TASK = 6  # (): the shift of a test function
SOLVER = 7  # (generation,): what a solver draws besides the members' noise
ACTIONS = 8  # (generation, batch): one seed per episode, for policies that sample their actions
REFERENCE = 9  # (): random actions that collect the reference batch of virtual batch normalisation
PICTURES = 16  # (generation,): which members are drawn in a picture of the search
SETTINGS = 17  # (trial, key): what a sweep draws for a trial
HELD_OUT_ACTIONS = 18  # (generation, attempt): one seed per held-out episode, where its actions are drawn


def stream(seed: int, purpose: int, *counters: int) -> np.random.Generator:
    """The random generator of (seed, purpose, counters): Philox 4x64, counter-based (Salmon et al. 2011).

    seed: the run's seed, at least 0.  purpose: one of the constants above.
    Two calls with equal arguments return generators that yield the same numbers.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(purpose, *counters))
    return np.random.Generator(np.random.Philox(sequence))
