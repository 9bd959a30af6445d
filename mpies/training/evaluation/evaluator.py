"""Play members and the mean on all ranks."""

import logging
import time
from collections.abc import Callable, Sequence

import numpy as np

from mpies.comm import Communicator
from mpies.comm.stopwatch import stopwatch
from mpies.config.schema import Config
from mpies.core.arrays import Array, Float32s, Float64s, Int64s
from mpies.envs.base import SEED_BITS
from mpies.rollouts.batch import RolloutBatch, evaluation_batch
from mpies.rollouts.queue import FailureGroup, PlayingRanks, Queues, RolloutQueue, gather_failures
from mpies.runs.snapshot import Evaluation
from mpies.solvers.base import AnySolver, Results
from mpies.training.control import Control, TrainingStopped
from mpies.training.evaluation.generation import MeanPolicy, Part, PlayedGeneration, QueueKey
from mpies.training.evaluation.recovery import OpenQueues
from mpies.training.task import Task

log = logging.getLogger(__name__)

OnPlay = Callable[[QueueKey, Queues], object]

MOST_LINES = 5  # for the failures of a generation
CONFIRMING = 100  # fresh episodes at least whose mean return must be at the target, too, for a run to be solved
HOPELESS = 16  # batches: a generation ends where all episodes of so many fail, since more would fail as well


def ignore(*_: object) -> None:
    """Where nobody wants to be called."""


class Evaluator:
    """Plays populations and the mean, together with all other ranks.

    on_play: called on every rank when it begins to play queues.
    queues: what is being played, and what has been played of the generations in flight.
    failures: on rank 0, of the rollouts that were played last.
    """

    def __init__(
        self,
        config: Config,
        task: Task,
        solver: AnySolver,
        comm: Communicator,
        control: Control,
        on_play: OnPlay = ignore,
    ) -> None:
        self.config, self.task, self.solver, self.comm, self.control = config, task, solver, comm, control
        self.on_play, self.queues = on_play, OpenQueues(comm)
        self.failures: list[FailureGroup] = []
        self._drawn: dict[tuple[int, int], Int64s] = {}  # noise indices of batches being played

    def evaluate(self, parts: Sequence[Part], generation: int, prefetch: Part | None = None) -> PlayedGeneration:
        """Play the members of a generation; batches of whole populations until the solver has enough.

        It also ends where all episodes of the first HOPELESS batches failed.
        parts: the members of the first population.  Those of later ones are sampled from the spec of the last part.
        prefetch: the early part of the next generation, which ranks that run dry go on with; None where there is none.
        """
        solver, batch = self.config.solver, 0
        records, observations, indices, busy = [], [], [], []
        queues = [self._open_training(part, generation, 0) for part in parts]
        if prefetch and generation + 1 < self.config.stop.generations:
            self._open_training(prefetch, generation + 1, 0)
        while True:
            key = QueueKey(generation, "training", batch)
            played, sums, seconds = self._play(queues, key)
            records.append(played)
            indices.append(self._indices(generation, batch))
            busy.append(seconds)
            if sums is not None:
                observations.append(sums)
            episodes, steps = sum(map(len, records)), sum(int(done["steps"].sum()) for done in records)
            if solver.is_complete(episodes, steps):
                break
            if len(records) == HOPELESS and all(np.isnan(done["total"]).all() for done in records):
                break
            batch += 1
            whole = Part(parts[-1].spec, 0, solver.members(self.task.dimension))
            queues = [self._open_training(whole, generation, batch)]
        self._drawn = {key: drawn for key, drawn in self._drawn.items() if key[0] > generation}
        results = results_of_members(np.concatenate(records), solver.episodes)
        self.control.failed_share = float(np.isnan(results.returns).mean())
        return PlayedGeneration(results, np.concatenate(indices), observations, np.asarray(sum(busy)))

    def evaluate_mean(self, policy: MeanPolicy, generation: int, is_result: bool = False) -> Evaluation | None:
        """Play held-out episodes of the mean, and at least CONFIRMING fresh ones when they reach the target.

        is_result: whether this evaluation is the result of the run.
        Returns None when no episode worked, and that is tolerated.
        Raises TrainingStopped when more than stop.max_failures of the episodes fail; when any fails, if is_result.
        """
        target, tolerated = self.config.stop.target, self.config.stop.max_failures
        if self.task.policy is None:  # a function may be undefined here and there, and has one value only
            tolerated = 1.0
        if is_result:
            tolerated = 0.0
        episodes = self.config.evaluation.episodes
        first = self._play_mean(policy, generation, 0, episodes, tolerated)
        if not len(first.returns):
            return None
        if target is None or first.failures or not first.mean >= target:
            return first
        second = self._play_mean(policy, generation, 1, max(episodes, CONFIRMING), tolerated)
        return Evaluation(
            np.concatenate([first.returns, second.returns]),
            np.concatenate([first.lengths, second.lengths]),
            confirmed=not second.failures and second.mean >= target,
            failures=second.failures,
        )

    def describe_failures(self, generation: int) -> str:
        """Why too many members of a generation failed, in one line; on rank 0."""
        share = f"{self.control.failed_share:.0%} of generation {generation} failed{self._main_reason()}"
        return f"{share}, more than stop.max_failures; the same command continues from there"

    def _main_reason(self) -> str:
        """The most frequent message, in brackets."""
        return f" ({self.failures[0].message})" if self.failures else ""

    def keep_finished(self) -> None:
        """Keep what this rank has played, because another rank was lost."""
        self.task.player.drop()
        self.queues.keep_finished()

    def _play_mean(
        self, policy: MeanPolicy, generation: int, attempt: int, episodes: int, tolerated: float
    ) -> Evaluation:
        """An Evaluation on seeds that are a function of (run seed, generation, attempt).

        tolerated: share of the episodes that may fail.
        """
        if self.task.policy is None:  # a function has one value
            episodes = 1
        mean, normalization = policy
        batch = evaluation_batch(mean, self.task.evaluation_seeds(generation, attempt, episodes), normalization)
        key = QueueKey(generation, "evaluation", attempt)
        records, _, _ = self._play([self.queues.open(key, batch)], key)
        evaluation = Evaluation.of(records["total"], records["steps"])
        if evaluation.failures / len(records) > tolerated:
            raise TrainingStopped(
                "failures",
                f"{evaluation.failures} of the {episodes} episodes that evaluate generation {generation} failed"
                f"{self._main_reason()}, so the run has no result; the same command continues from generation "
                f"{generation - 1}",
            )
        return evaluation

    def _open_training(self, part: Part, generation: int, batch: int) -> RolloutQueue:
        """The queue of a part of a batch of a generation's members; one that is open already goes on."""
        key = QueueKey(generation, "training", batch, part.start)
        if queue := self.queues.get(key):
            return queue
        indices = self._indices(generation, batch)
        return self.queues.open(key, training_batch(self.task, self.solver, part, generation, batch, indices))

    def _indices(self, generation: int, batch: int) -> Int64s:
        """The noise indices of a batch of a generation's members, which are drawn once."""
        if (key := (generation, batch)) not in self._drawn:
            self._drawn[key] = self.solver.population_indices(generation, batch)
        return self._drawn[key]

    def _play(self, queues: Queues, key: QueueKey) -> tuple[Array, Array | None, Float64s]:
        """Play queues on all ranks; a rank that runs dry goes on with the next generation's early queue.

        Returns the records of all rollouts in order, on rank 0 the observation sums in order (None elsewhere, and
        where nothing was sampled), and the seconds (ranks,) that each rank played.
        """
        self.queues.close_before(key.generation)
        next_generation = key.generation + (key.kind == "training")
        prefetch = self.queues.get(QueueKey(next_generation, "training", 0))
        self.on_play(key, queues)
        is_over = self.comm.nonblocking_barrier() if prefetch else lambda: True
        began, before = stopwatch.now(), self.task.player.played
        players = self.task.count_players(self.comm.node_size)
        if self.comm.node_rank < players:
            self.task.player.play(queues, prefetch, PlayingRanks(players, is_over, self.control.must_abandon))
        busy = int((stopwatch.now() - began) * 1e9)
        while not is_over():
            time.sleep(0)
        failures = {queue.batch.first + number: why for queue in queues for number, why in queue.failures.items()}
        numbers_sent = self.control.request(), busy, len(failures), self.task.player.played - before
        finished = np.concatenate([queue.finished() for queue in queues])
        records, numbers = self.comm.allgather(finished, numbers_sent)
        self.failures = gather_failures(self.comm, failures) if numbers[:, 2].any() else []
        self._log_failures(np.concatenate([queue.batch.seeds for queue in queues]), key)
        self.control.agree(numbers[:, 0])
        if key.kind == "training" and self.comm.nodes > 1:
            sizes = [self.task.count_players(size) for size in np.bincount(self.comm.node_of).tolist()]
            self.queues.speeds.measure(self.comm.node_of, sizes, numbers[:, 1], numbers[:, 3])
        sums = None
        if self.task.observation_size and any(queue.batch.sampled.any() for queue in queues):
            observed = [queue.observations(self.task.observation_size) for queue in queues]
            sums = self.comm.gather(np.concatenate(observed))
        return in_order(records), None if sums is None else in_order(sums), numbers[:, 1] / 1e9

    def _log_failures(self, seeds: Int64s, key: QueueKey) -> None:
        """Log the failures on rank 0: a line for all that failed with the same message.  seeds: of all rollouts."""
        solver, environment = self.config.solver, self.config.environment.id
        for group in self.failures[:MOST_LINES]:
            member, episode = divmod(group.first, solver.episodes)
            number = key.batch * solver.members(self.task.dimension) + member
            what, generation = f"member {number}, episode {episode}", key.generation + 1
            effects = "it ranks worst", "their members rank worst"
            if key.kind == "evaluation":
                what, generation = f"evaluation, episode {group.first}", key.generation
                effects = "it is left out of the mean", "they are left out of the mean"
            place = f", rank {group.ranks[0]}" if self.comm.size > 1 and len(group.ranks) == 1 else ""
            others = f" and {group.count - 1} more" if group.count > 1 else ""
            later, seed = divmod(int(seeds[group.first]), 1 << SEED_BITS)
            seed_and_number = f"{seed}, its episode {later + 1}" if later else f"{seed}"
            log.warning(
                "%s, generation %d, %s (environment seed %s%s)%s failed: %s; %s",
                *(environment, generation, what, seed_and_number, place, others, group.message),
                effects[group.count > 1],
            )
        if rest := self.failures[MOST_LINES:]:
            count = sum(group.count for group in rest)
            log.warning("%s: %d more episodes failed, for %d other reasons", environment, count, len(rest))


def training_batch(
    task: Task, solver: AnySolver, part: Part, generation: int, batch: int, indices: Int64s
) -> RolloutBatch:
    """The rollouts of a part's members.

    generation: how many generations were complete before it.  batch: number of the batch of members in it.
    indices: (k,) noise indices of the members of the whole batch.
    """
    episodes, spec = task.config.solver.episodes, part.spec
    own = slice(part.start * episodes, part.stop * episodes)
    action_seeds = task.action_seeds(generation, batch)

    def write(rollout: int, out: Float32s) -> Sequence[float]:
        return solver.write(spec.proposal, indices, part.start + rollout // episodes, out)

    return RolloutBatch(
        seeds=task.training_seeds(generation, batch)[own],
        write=write,
        sampled=task.training_samples(generation, batch)[own],
        normalization=spec.normalization,
        action_seeds=None if action_seeds is None else action_seeds[own],
        first=own.start,
        is_training=True,
        limit=spec.limit,
        payload_size=solver.payload_size,
        behaviour_size=task.behaviour_size if solver.wants_behaviour else 0,
    )


def in_order(records: Array) -> Array:
    """Records in the order of their rollouts."""
    return records[np.argsort(records["rollout"])]


def results_of_members(records: Array, episodes: int) -> Results:
    """The Results of members from the records of all their episodes, in order."""
    totals, signs, steps = (records[name].reshape(-1, episodes) for name in ("total", "signs", "steps"))
    payload, behaviours = (records[name].reshape(len(totals), episodes, -1) for name in ("payload", "behaviour"))
    return Results(totals.mean(axis=1), signs.mean(axis=1), steps.sum(axis=1), payload[:, 0], behaviours.mean(axis=1))
