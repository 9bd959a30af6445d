"""How the ranks of a job are divided into groups that each train one trial of a sweep after the other."""

import time
from collections.abc import Sequence

import numpy as np

from mpies.comm import Communicator
from mpies.core.errors import ConfigError
from mpies.core.text import counted

LOOK = 0.02  # seconds between two looks at whether all ranks have come


def find_group(comm: Communicator, ranks_per_run: int) -> int:
    """The number of this rank's group.  All ranks call this."""
    nodes = comm.allgather(np.array([comm.node], np.int64))[0]
    places = np.argsort(np.argsort(nodes, kind="stable"))  # ranks of a node are neighbours, however they are numbered
    sizes = equal_groups(np.bincount(nodes).tolist(), ranks_per_run)
    return int(np.searchsorted(np.cumsum(sizes), places[comm.rank], side="right"))


def check_ranks_per_run(wanted: int | None, ranks: int) -> None:
    """Raise ConfigError where a run is to have more than all ranks.  wanted: of a run; None where that is left open."""
    if wanted and wanted > ranks:
        has = counted(ranks, "rank")
        raise ConfigError(f"--ranks-per-run is {wanted}, but the job has {has}; lower it, or start more ranks")


def choose_ranks_per_run(trials: int, ranks: int, node_ranks: int) -> int:
    """How many ranks train a run together, where nobody says.

    As few as leave no rank without a trial: on one rank a run is most efficient.  With fewer trials than ranks they
    divide a node, or are whole nodes.

    trials: how many are to be trained.  ranks: of the job.  node_ranks: of a node.
    """
    sizes, wanted = group_sizes(ranks, node_ranks), -(-ranks // max(1, trials))
    return next((size for size in sizes if size >= wanted), sizes[-1])


def group_sizes(ranks: int, node_ranks: int) -> list[int]:
    """Numbers of ranks of which groups can be made that share no node with a part of another one, the least first."""
    parts = [size for size in range(1, min(node_ranks, ranks) + 1) if node_ranks % size == 0]
    nodes = [node_ranks * 2**power for power in range(1, 24) if node_ranks * 2**power <= ranks]
    return [*parts, *nodes]


def equal_groups(node_sizes: Sequence[int], ranks_per_run: int) -> list[int]:
    """Sizes of groups of ranks_per_run ranks, none of them on two nodes where a node has as many.

    node_sizes: ranks of each node.  What is left of a node, or of all of them, makes a smaller group.
    """
    whole = node_sizes if ranks_per_run <= min(node_sizes) else [sum(node_sizes)]
    return [min(ranks_per_run, size - start) for size in whole for start in range(0, size, ranks_per_run)]


def wait_for_all(comm: Communicator) -> None:
    """Wait for all ranks of the job, without load on the processors that others still need."""
    is_over = comm.nonblocking_barrier()
    while not is_over():
        time.sleep(LOOK)
