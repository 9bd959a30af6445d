"""Evaluate a function of the parameters: a rollout of one step, without a policy."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from mpies.core.arrays import Array
from mpies.core.text import describe_error
from mpies.envs.functions import FunctionEnv
from mpies.rollouts.queue import ALONE, PlayingRanks, Queues, RolloutQueue


class FunctionPlayer:
    """A Player for a FunctionEnv.  dtype: of the parameters."""

    def __init__(self, env: FunctionEnv, dtype: npt.DTypeLike = np.float32) -> None:
        self.env, self.played = env, 0
        self._parameters: Array = np.empty(env.dimension, dtype)

    def play(self, queues: Queues, prefetch: RolloutQueue | None = None, ranks: PlayingRanks = ALONE) -> None:
        for queue in queues:
            while not queue.is_exhausted and not ranks.must_abandon():
                self._play_some(queue, queue.counter.left // (4 * ranks.count), ranks.must_abandon)
        while prefetch and not prefetch.is_exhausted and not ranks.must_abandon() and not ranks.are_done():
            self._play_some(prefetch, 1, ranks.must_abandon)

    def drop(self) -> None:
        """Nothing is ever unfinished."""

    def _play_some(self, queue: RolloutQueue, count: int, must_abandon: Callable[[], bool]) -> None:
        batch = queue.batch
        for rollout in queue.take(max(1, count)).tolist():
            if must_abandon():
                queue.in_flight = 0  # nothing of it is played any more
                return
            with np.errstate(all="ignore"):  # a member may overflow; its value shows it
                payload = batch.write(rollout, self._parameters)
            if batch.payload_size:
                queue.results["payload"][rollout] = payload
            try:
                value = self.env.value(self._parameters)
            except BaseException as error:  # a user's function may raise anything
                value = np.nan
                queue.failures[rollout] = describe_error(error)
            if batch.behaviour_size:
                queue.results["behaviour"][rollout] = self.env.behaviour(self._parameters)
            if not np.isfinite(value):
                queue.failures.setdefault(rollout, f"value {value}")
                value = np.nan
            self.played += 1
            queue.finish(rollout, value, float(np.sign(value)), 1)
