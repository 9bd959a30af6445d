"""Where every random number comes from.

A stream is named by its purpose and counted by what it belongs to (generation, round, block);
never by a rank, a clock or an order of arrival.  That is what makes a run the same on any
number of ranks.
"""

import numpy as np

# One number per purpose.  They are part of the format of a run: never reuse or renumber one.
NOISE_TABLE = 0  # (block,)
MEMBERS = 1  # (generation, round): noise indices
EPISODES = 2  # (generation, round): environment seeds of training episodes
EVALUATION = 3  # (generation, attempt): environment seeds of held-out episodes
INITIAL_MEAN = 4  # (): first parameters
STATISTICS = 5  # (generation, round): which episodes feed the observation statistics
TASK = 6  # (): the shift of a test function
SOLVER = 7  # (generation,): what a solver draws besides the members' noise
ACTIONS = 8  # (generation, round): seeds of what a policy leaves to chance, one for each episode
REFERENCE = 9  # (): actions that lead to the reference batch of virtual batch normalisation
PICTURES = 16  # (generation,): which members a picture of the search shows


def stream(seed, purpose, *counters):
    """The generator of (seed, purpose, counters): counter-based Philox 4x64 (Salmon et al. 2011).

    seed: the run's seed, an int >= 0.  purpose: one of the constants above.
    Two calls with equal arguments give generators that yield the same numbers.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(purpose, *counters))
    return np.random.Generator(np.random.Philox(sequence))
