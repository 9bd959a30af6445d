"""Failed rollouts of all ranks, those with equal messages as one."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mpies.comm import Communicator


@dataclass
class FailureGroup:
    """Rollouts that failed with the same message.

    count: how many.  first: the lowest rollout among them.  ranks: those that played them.
    """

    message: str
    count: int
    first: int
    ranks: list[int]


def gather_failures(comm: Communicator, failures: Mapping[int, str]) -> list[FailureGroup]:
    """On rank 0 the groups of all ranks, the largest first; [] elsewhere.  Collective.

    failures: rollout to message, of this rank.
    """
    own: dict[str, list[int]] = {}
    for rollout, message in failures.items():
        own.setdefault(message, []).append(rollout)
    line = json.dumps([[message, len(rollouts), min(rollouts)] for message, rollouts in own.items()]) + "\n"
    gathered = comm.gather(np.frombuffer(line.encode(), np.uint8))
    groups: dict[str, FailureGroup] = {}
    lines = [] if gathered is None else gathered.tobytes().decode().splitlines()
    for rank, part in enumerate(lines):
        for message, count, first in json.loads(part):
            group = groups.setdefault(message, FailureGroup(message, 0, first, []))
            group.count += count
            group.first = min(group.first, first)
            group.ranks.append(rank)
    return sorted(groups.values(), key=lambda group: (-group.count, group.first))
