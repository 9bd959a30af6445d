"""The noise table: one long vector of standard normals from which the noise of every member is read.

The noise of a member is table[index : index + d], so one integer is enough to identify it
(Salimans et al. 2017, arXiv 1703.03864, section 2.1).
"""

import numpy as np
import numpy.typing as npt

from mpies.core.arrays import Float32s, FloatArray, Int64s
from mpies.core.streams import MEMBERS, NOISE_TABLE, stream

BLOCK = 1 << 18  # normals per stream; saved runs depend on it
LINE = 16  # float32 per cache line; indices are multiples of it, because aligned rows are read a fifth faster


def blocks(size: int) -> int:
    """Number of blocks of a table of `size` normals; each can be filled on its own."""
    return -(-size // BLOCK)


def fill(table: Float32s, seed: int, block: int) -> None:
    """Write block number `block` of the table of `seed` into `table` (size,).

    The content depends on (seed, block) only, so any process may fill any block.
    """
    part = table[block * BLOCK : (block + 1) * BLOCK]
    stream(seed, NOISE_TABLE, block).standard_normal(out=part, dtype=np.float32)


class Filling:
    """Fills the blocks of a table when noise is first read from them: a short run reads only a few.

    table: (size,).  is_filled: (blocks,) which ones are; at first none.  Processes that share both share the work.
    first: the block that this process begins with where it needs all.
    A block that two processes fill at the same moment gets the same content from both.
    """

    def __init__(self, table: Float32s, is_filled: npt.NDArray[np.uint8], seed: int, first: int = 0) -> None:
        self.table, self._is_filled, self._seed = table, is_filled, seed
        self._missing = [*range(first, len(is_filled)), *range(first)]  # blocks, as far as this process knows

    def fill(self, indices: npt.ArrayLike, length: int) -> None:
        """Fill the blocks of the rows of `length` normals that begin at these indices."""
        if not self._missing:
            return
        starts = np.asarray(indices).ravel()
        ends = zip((starts // BLOCK).tolist(), ((starts + length - 1) // BLOCK).tolist(), strict=True)
        wanted = {block for low, high in ends for block in range(low, high + 1)}
        for block in [block for block in self._missing if block in wanted]:
            if not self._is_filled[block]:
                fill(self.table, self._seed, block)
                self._is_filled[block] = 1
            self._missing.remove(block)


def build_table(size: int, seed: int = 1, dtype: npt.DTypeLike = np.float32) -> FloatArray:
    """A filled noise table (size,) of this process alone.  The values are drawn in float32, whatever the dtype."""
    table = np.empty(size, np.float32)
    for block in range(blocks(size)):
        fill(table, seed, block)
    return table.astype(dtype, copy=False)


def sample_indices(seed: int, generation: int, batch: int, count: int, table_size: int, dimension: int) -> Int64s:
    """Noise indices (count,) of batch number `batch` of a generation.

    Every rank computes them itself; nothing is sent.
    Raises ValueError if the table is shorter than the noise of one member.
    """
    if count and table_size < dimension:
        raise ValueError(f"a table of {table_size} normals is smaller than one member of {dimension} parameters")
    starts = count_starts(table_size, dimension)
    return stream(seed, MEMBERS, generation, batch).integers(0, starts, size=count) * LINE


def count_starts(table_size: int, dimension: int) -> int:
    """At how many places of the table the noise of a member may begin; as many different directions exist."""
    return max(0, table_size - dimension) // LINE + 1
