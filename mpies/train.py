"""The generation loop: who computes what, and when the ranks meet.

Every rank runs `Trainer.train`.  Rank 0 alone has a Learner: it broadcasts the proposal, all ranks play,
weigh and sum their coordinates, and rank 0 takes the step.
"""

import logging
import time

import numpy as np

from mpies.learner import Evaluation, Learner
from mpies.rollouts import Work
from mpies.task import Task
from solvers import find_solver, noise
from solvers.base import Results
from solvers.moments import moments

log = logging.getLogger(__name__)

# Why a run ends; rank 0 decides and sends the number.
REASONS = ("", "solved", "generations", "steps", "seconds", "signal", "failures")


class Trainer:
    """One rank's part of a run.

    config: Config.  comm: a communicator.  signals: tells whether this process was asked to stop.
    """

    def __init__(self, config, comm, signals):
        self.config, self.comm, self.signals = config, comm, signals
        self.task = Task(config)
        self.solver = find_solver(config.solver.kind)(config.solver, self.task.dimension, config.seed)
        self.learner = Learner(self.solver, self.task) if comm.rank == 0 else None
        self.stop_asked = False  # by a signal to any rank; the same on all
        self.too_many_failed = False
        self.generation = 0  # generations made

    def build_table(self):
        """The node's noise table, each of its ranks filling every so-manieth block; and room for the solver's rows."""
        comm, size, dimension = self.comm, self.config.noise.size, self.task.dimension
        if not self.config.solver.noise_rows(dimension):
            size = 0
        self.table = comm.shared(size, np.float32)
        for block in range(comm.node_rank, noise.blocks(size), comm.node_size):
            noise.fill(self.table, self.config.seed, block)
        self.solver.table = self.table
        self.rows = comm.shared(self.solver.rows * dimension, np.float32).reshape(-1, dimension)
        comm.node_barrier()

    def train(self, run=None, progress=None):
        """Run generations until a stop rule holds; returns its name.  run, progress: on rank 0 only."""
        self.generation = self.agree(self.learner and self.learner.clock.generation)
        reason = self.agree_reason()
        while not reason:
            results = self.make_generation()
            reason = self.agree_reason()
            evaluation, is_best = None, False
            if self.evaluation_due(reason):
                evaluation = self.evaluate()
                is_best = self.learner and self.learner.judge(evaluation)
                reason = self.agree_reason()
            if self.learner:
                row = self.learner.record(results, evaluation, self.comm.size)
                run.record(self.learner, row, evaluation, is_best, last=bool(reason))
                progress.show(row, evaluation)
        return reason

    def make_generation(self):
        """One generation on all ranks, from the proposal to the step.  Returns its Results."""
        began = time.perf_counter()
        proposal, normalization = self.share()
        results, indices, observed = self.play_generation(proposal, normalization)
        weights = self.solver.weigh(results, proposal)
        sums = self.sum_moments(indices, weights)
        self.generation += 1
        if self.learner:
            self.learner.update(proposal, results, sums, observed, time.perf_counter() - began)
        return results

    def agree(self, number):
        """Rank 0's whole number, on every rank."""
        return int(self.comm.broadcast([np.array([number or 0], np.float64)])[0][0])

    def agree_reason(self):
        """Why to stop now, or ''; rank 0 decides."""
        if self.stop_asked:
            return "signal"
        if self.too_many_failed:
            return "failures"
        return REASONS[self.agree(self.learner and REASONS.index(self.learner.stop_reason(self.config.stop)))]

    def share(self):
        """The Proposal and (2, o) observation mean and deviation (None without), from rank 0 to all."""
        proposal = self.learner and self.solver.ask()
        *vectors, normalization = self.send(proposal.vectors() if proposal else ())
        if len(self.rows):
            self.comm.share_rows(proposal and proposal.rows, self.rows)
        return self.solver.Proposal(*vectors, rows=self.rows), normalization

    def send(self, vectors):
        """Rank 0's vectors and its observation mean and deviation, on every rank."""
        if self.learner:
            vectors = [*vectors, self.learner.normalizer.mean_and_deviation().ravel()]
        *vectors, normalization = self.comm.broadcast(vectors)
        return *vectors, normalization.reshape(2, -1) if len(normalization) else None

    def play_generation(self, proposal, normalization):
        """Play whole populations until the batch is as large as it must be, all members in order.

        Returns Results, noise indices (k,) and, on rank 0, the observation sums.
        """
        solver, task = self.config.solver, self.task
        payload = self.solver.payload_size
        rows, indices, observed, batch = [], [], [], 0
        while True:
            part = noise.sample_indices(
                self.config.seed,
                self.generation,
                batch,
                solver.noise_rows(task.dimension),
                len(self.table),
                task.dimension,
            )
            seeds = task.training_seeds(self.generation, batch)
            notes = np.zeros((len(seeds), payload + self.solver.wants_behaviour * task.behaviour_size))

            def write(rollout, out, part=part, notes=notes):
                notes[rollout, :payload] = self.solver.write(proposal, part, rollout // solver.episodes, out)

            work = Work(seeds, task.training_samples(self.generation, batch), write, notes, notes[:, payload:])
            played, seen = self.play(work, normalization)
            rows.append(played)
            observed.append(seen)
            indices.append(part)
            batch += 1
            episodes, steps = sum(map(len, rows)), sum(int(r["steps"].sum()) for r in rows)
            if solver.is_complete(episodes, steps):
                break
        results = collect(np.concatenate(rows), solver.episodes, payload)
        failed = np.isnan(results.returns).mean()
        self.too_many_failed = bool(failed > self.config.stop.max_failures)
        return results, np.concatenate(indices), observed

    def play(self, work, normalization):
        """Play rollouts on all ranks.  Returns ROLLOUT rows in order and, on rank 0, observation sums."""
        tickets = self.comm.tickets(len(work.seeds))
        rows, observed, failures = self.task.player.play(work, tickets, self.comm.node_size, normalization)
        for rollout, message in failures.items():
            log.warning(
                "generation %d, rollout %d (environment seed %d) failed: %s; it ranks worst",
                self.generation + 1,
                rollout,
                work.seeds[rollout],
                message,
            )
        rows, stop = self.comm.allgather(with_notes(rows, work.notes), flag=self.signals.raised)
        self.stop_asked |= stop
        if self.task.observation_size and work.sampled.any():
            observed = self.comm.gather(observed)
        return np.sort(rows, order="rollout"), None if observed is None else np.sort(observed, order="rollout")

    def sum_moments(self, indices, weights):
        """The moments (orders, d) on rank 0, each rank having summed its block of coordinates."""
        indices = indices[: weights.linear.shape[1]]  # none where the solver wants no moments
        bounds = self.task.dimension * np.arange(self.comm.size + 1) // self.comm.size
        start, stop = bounds[self.comm.rank : self.comm.rank + 2]
        return self.comm.gather_blocks(moments(self.table, indices, weights, start, stop), bounds)

    def evaluation_due(self, reason):
        every = self.config.evaluation.every
        return reason not in ("signal", "failures") and (reason or (every and self.generation % every == 0))

    def evaluate(self):
        """Play held-out episodes with the mean; again with as many fresh ones when it seems solved."""
        target, episodes = self.config.stop.target, self.config.evaluation.episodes
        mean, normalization = self.send([self.solver.mean] if self.learner else ())
        first = self.play_mean(mean, normalization, 0, episodes)
        if target is None or not first.mean >= target:
            return Evaluation(first.returns, confirmed=False)
        second = self.play_mean(mean, normalization, 1, episodes)
        return Evaluation(np.concatenate([first.returns, second.returns]), confirmed=second.mean >= target)

    def play_mean(self, mean, normalization, attempt, episodes):
        """An Evaluation of `mean` on seeds that belong to (seed, generation, attempt)."""
        if self.task.policy is None:
            episodes = 1  # a function has no luck
        seeds = self.task.evaluation_seeds(self.generation, attempt, episodes)

        def write(rollout, out):
            out[:] = mean

        rows, _ = self.play(Work(seeds, np.zeros(episodes, bool), write), normalization)
        return Evaluation(rows["total"])


def with_notes(rows, notes):
    """ROLLOUT rows with the notes on each of them, ready to travel.  notes: (r, w) float64, by rollout."""
    if notes is None or not notes.shape[1]:
        return rows
    noted = np.empty(len(rows), np.dtype([*rows.dtype.descr, ("notes", "f8", notes.shape[1:])]))
    for name in rows.dtype.names:
        noted[name] = rows[name]
    noted["notes"] = notes[rows["rollout"]]
    return noted


def collect(rows, episodes, payload):
    """Results of members from the ROLLOUT rows of their episodes, in order; the first notes are the payload."""
    totals, signs, steps = (rows[name].reshape(-1, episodes) for name in ("total", "signs", "steps"))
    notes = rows["notes"] if "notes" in rows.dtype.names else np.zeros((len(rows), 0))
    notes = notes.reshape(len(totals), episodes, -1)
    behaviours = notes[:, :, payload:].mean(axis=1)
    return Results(totals.mean(axis=1), signs.mean(axis=1), steps.sum(axis=1), notes[:, 0, :payload], behaviours)
