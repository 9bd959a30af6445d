"""The values of a function, evaluated by all ranks of a job together."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.comm import Communicator
from mpies.envs.functions import CustomFunctionEnv
from mpies.rollouts.batch import RolloutBatch
from mpies.rollouts.function_player import FunctionPlayer
from mpies.rollouts.queue import FailureGroup, PlayingRanks, RolloutQueue, gather_failures
from mpies.solvers.sampling.noise import FloatArray

Function = Callable[[npt.NDArray[np.float64]], Any]


@dataclass(frozen=True)
class Evaluated:
    """What evaluating n members came to.

    values: (n,), NaN where the function failed, and where Ctrl-C came first.
    failures: on rank 0, those with equal messages as one.
    is_interrupted: whether a rank was told to stop by Ctrl-C.
    """

    values: npt.NDArray[np.float64]
    failures: list[FailureGroup]
    is_interrupted: bool = False


@dataclass(frozen=True)
class _Rows:
    """The parameters of a batch: those of a rollout are a row of `members` (n, d)."""

    members: FloatArray

    def write(self, rollout: int, out: npt.NDArray[Any]) -> Sequence[float]:
        out[:] = self.members[rollout]
        return ()


class FunctionRanks:
    """Evaluates a function of d parameters on all ranks of a communicator; each takes the next member that is left.

    Rank 0 calls `evaluate`, and `release` at the end; all others call `serve`.
    """

    def __init__(self, function: Function, dimension: int, comm: Communicator) -> None:
        self._comm, self._dimension = comm, dimension
        name = getattr(function, "__name__", type(function).__name__)
        env = CustomFunctionEnv(name, dimension, np.zeros(dimension), function)
        self._player = FunctionPlayer(env, np.float64)

    def evaluate(self, members: FloatArray) -> Evaluated:
        """Evaluate the members (n, d).  On rank 0."""
        self._comm.broadcast([members.ravel()])
        return self._evaluate(members)

    def serve(self) -> Any:
        """Evaluate what rank 0 asks for until it calls `release`; returns the outcome that it gave.  Not on rank 0."""
        while True:
            vector = self._comm.broadcast(None)[0]
            if vector.dtype == np.uint8:
                return json.loads(vector.tobytes())
            self._evaluate(vector.reshape(-1, self._dimension))

    def release(self, outcome: Any = None) -> None:
        """End `serve` on the other ranks.  outcome: what it returns there, of lists, texts and numbers.  On rank 0."""
        self._comm.broadcast([np.frombuffer(json.dumps(outcome).encode(), np.uint8)])

    def _evaluate(self, members: FloatArray) -> Evaluated:
        """The values of members (n, d), the same on every rank.  Collective."""
        comm, count = self._comm, len(members)
        batch = RolloutBatch(np.zeros(count, np.int64), _Rows(members), np.zeros(count, bool))
        queue = RolloutQueue(batch, counter=comm.work_counter(count))
        is_interrupted = False
        try:
            self._player.play([queue], ranks=PlayingRanks(comm.size))
        except KeyboardInterrupt:
            is_interrupted = True
        records, numbers = comm.allgather(queue.finished(), (len(queue.failures), is_interrupted))
        values = np.full(count, np.nan)
        values[records["rollout"]] = records["total"]
        values[~np.isfinite(values)] = np.nan
        failures = gather_failures(comm, queue.failures) if numbers[:, 0].any() else []
        return Evaluated(values, failures, bool(numbers[:, 1].any()))
