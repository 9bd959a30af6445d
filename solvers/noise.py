"""The noise table: one long vector of standard normals that all members are cut from.

A member's noise is table[index : index + d], so a member travels as one integer
(Salimans et al. 2017, section 2.3).
"""

import numpy as np

from solvers.streams import MEMBERS, NOISE_TABLE, stream

BLOCK = 1 << 18  # normals per counter-based stream; part of the format of a run
LINE = 16  # members begin at multiples of this, on cache lines: a fifth faster to read than anywhere


def blocks(size):
    """Number of independently fillable blocks of a table of `size` normals."""
    return -(-size // BLOCK)


def fill(table, seed, block):
    """Write block number `block` of the table of `seed` into `table` (size,) float32.

    The content is a function of (seed, block) only, so any process may fill any block.
    """
    part = table[block * BLOCK : (block + 1) * BLOCK]
    stream(seed, NOISE_TABLE, block).standard_normal(out=part, dtype=np.float32)


def sample_indices(seed, generation, batch, count, table_size, dimension):
    """Noise indices (count,) int64 of batch number `batch` of a generation.

    Every rank derives them by itself; nothing is sent.  Raises ValueError when the table is
    shorter than one member.
    """
    if count and table_size < dimension:
        raise ValueError(f"a table of {table_size} normals is smaller than one member of {dimension} parameters")
    return (
        stream(seed, MEMBERS, generation, batch).integers(0, max(0, table_size - dimension) // LINE + 1, size=count)
        * LINE
    )
