"""The generation loop: who computes what, and when the ranks meet.

Every rank runs `Trainer.train`.  Rank 0 alone has a Learner: it broadcasts the proposal, all ranks play,
weigh and sum their coordinates, and rank 0 takes the step.
"""

import logging
import time
from dataclasses import dataclass, fields

import numpy as np

from mpies import store
from mpies.communicator import RankLost
from mpies.learner import Evaluation, Learner, as_normalization
from mpies.rollouts import Session, Work, observation_record
from mpies.task import Task
from solvers import find_solver, noise
from solvers.base import Results
from solvers.moments import split

log = logging.getLogger(__name__)

# Why a run ends; rank 0 decides and sends the number.
REASONS = ("", "solved", "generations", "steps", "seconds", "signal", "failures")

# What a rank asks of the others after its share of a generation.
CONTINUE, STOP, ABANDON = range(3)


class Abandoned(Exception):
    """A signal's grace is over before the generation is; it will be played again after a resume."""


@dataclass(frozen=True)
class Offer:
    """What every rank must know to play a generation.

    normalization: (2, o) observation mean and deviation; None without.  limit: steps of its training episodes, or None.
    """

    proposal: object
    normalization: np.ndarray | None
    limit: int | None


class Trainer:
    """One rank's part of a run.

    config: Config.  comm: a communicator.  signals: tells whether this process was asked to stop.
    """

    def __init__(self, config, comm, signals):
        self.config, self.comm, self.signals = config, comm, signals
        self.task = Task(config)
        self.solver = find_solver(config.solver.kind)(config.solver, self.task.dimension, config.seed)
        self.solver.directions = self.task.directions
        self.learner = None  # on rank 0, once it has read the run
        self.generation = 0  # generations made
        self.ahead = None  # Offer of the coming generation, where generations overlap
        self.flag = CONTINUE  # the highest that a rank has raised
        self.failed = 0.0  # share of the newest generation's members
        self.sessions = {}  # what this rank plays, and has played of the generation under way, by key
        self.salvaging = False  # whether a rank was lost in the generation under way
        self.salvaged = {}  # what this rank had played when it was
        self.busy = []  # seconds (ranks,) that each rank played, of each batch of the newest generation

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

    def train(self, run, progress):
        """Run generations until a stop rule holds; returns its name.

        run: store.Run, progress: what shows it; only the rank that is 0 at the time uses them.
        """
        reason = ""
        while not reason:
            try:
                self.open(run)
                while not reason:
                    reason = self.advance(run, progress)
            except Abandoned:
                reason = "signal"
            except RankLost:
                began = time.perf_counter()
                self.task.player.drop()
                lost = self.comm.repair()
                self.salvaging, self.salvaged, self.sessions = True, self.salvaged | self.sessions, {}
                if self.comm.rank == 0:
                    seconds = time.perf_counter() - began
                    log.warning("lost %s; %d ranks go on after %.3f s", lost, self.comm.size, seconds)
        self.task.player.drop()
        return reason

    def open(self, run):
        """Bring all ranks to the same generation; a rank 0 that is new to it reads the run first."""
        self.ahead = None
        if not self.agree(self.learner is not None):
            records, learner = [], None
            if self.comm.rank == 0:
                learner = Learner(self.solver, self.task)
                checkpoint, records = run.load()
                learner.begin(checkpoint)
            # What the checkpoint lacks is made again from the ledger, without an environment.
            for number in range(self.agree(len(records))):
                self.repeat_generation(learner, records[number] if learner else None)
            if learner:
                if records and store.digest(learner.state()) != records[-1]["digest"].item():
                    log.warning("the ledger of %s does not lead where it led; going back to the checkpoint", run.path)
                    learner = Learner(self.solver, self.task)
                    learner.begin(checkpoint)
                if learner.clock.generation:
                    log.info("%s: going on from generation %d", run.path, learner.clock.generation)
                run.begin(learner)
            self.learner, self.ahead = learner, None
        self.generation = self.agree(self.learner and self.learner.clock.generation)

    def advance(self, run, progress):
        """A generation, its evaluation and its record on disk.  Returns why to stop after it, or ''."""
        if not self.agree(self.learner and self.learner.results is not None):  # it may be made but not on disk
            if reason := self.agree_reason():
                return reason
            self.make_generation(run.settle)
        reason = self.agree_reason()
        evaluation, is_best = None, False
        if self.evaluation_due(reason):
            evaluation = self.evaluate()
            is_best = self.learner and self.learner.judge(evaluation)
            reason = self.agree_reason()
        if self.learner:
            row = self.learner.record(evaluation, self.comm.size)
            run.record(self.learner, row, evaluation, is_best, last=bool(reason))
            self.learner.results = None
            progress.show(row, evaluation)
        self.salvaging, self.salvaged = False, {}  # what was not asked for again is played anew by all
        return reason

    def make_generation(self, settle=lambda: None):
        """One generation on all ranks, from the proposal to the step.  Returns its Results.

        settle: called on rank 0 before the learner changes.
        """
        began, self.busy = time.perf_counter(), []
        offer, ahead = self.share_offers(self.learner)
        results, indices, observed = self.play_generation(offer, ahead)
        sums = self.sum_moments(offer.proposal, indices, results)
        if self.learner:
            settle()
            seconds = time.perf_counter() - began
            self.learner.update(offer.proposal, results, sums, observed, seconds)
            played = sum(part for part in self.busy if len(part) == self.comm.size)  # not of ranks since lost
            self.learner.idle = 1 - np.minimum(played / seconds, 1)
        self.generation += 1
        return results

    def repeat_generation(self, learner, record):
        """One generation from its ledger record.  learner, record: on rank 0."""
        offer, _ = self.share_offers(learner)
        names = [entry.name for entry in fields(Results)]
        shapes = self.comm.broadcast([np.array(record[name].shape) for name in names] if learner else None)
        arrays = self.comm.broadcast([record[name].ravel() for name in names] if learner else None)
        results = Results(*(array.reshape(shape) for array, shape in zip(arrays, shapes, strict=True)))
        self.generation = self.agree(learner and learner.clock.generation)
        batches = range(len(results.returns) // self.config.solver.members(self.task.dimension))
        indices = np.concatenate([self.indices(self.generation, batch) for batch in batches])
        sums = self.sum_moments(offer.proposal, indices, results)
        if learner:
            learner.repeat(offer.proposal, sums, record)

    def agree(self, number):
        """Rank 0's whole number, on every rank."""
        return int(self.comm.broadcast([np.array([number or 0], np.int64)])[0][0])

    def agree_reason(self):
        """Why to stop now, or ''; rank 0 decides."""
        reason = ""
        if self.learner:
            reason = self.learner.stop_reason(self.config.stop)
            if self.failed > self.config.stop.max_failures:
                reason = "failures"
            if self.flag != CONTINUE and reason != "solved":
                reason = "signal"
        return REASONS[self.agree(REASONS.index(reason))]

    def share_offers(self, learner):
        """The Offers of this generation and, where generations overlap, of the next, which is else None."""
        if not self.config.overlap:
            return self.share(learner and learner.offer()), None
        offer = self.ahead or self.share(learner and learner.ahead)
        self.ahead = self.share(learner and learner.offer())
        return offer, self.ahead

    def share(self, vectors):
        """The Offer in rank 0's vectors, see make_offer, on every rank."""
        *vectors, normalization, limit = self.comm.broadcast(vectors)
        if len(self.rows):
            self.comm.share_rows(self.solver.ask().rows if self.comm.rank == 0 else None, self.rows)
        proposal = self.solver.Proposal(*vectors, rows=self.rows)
        return Offer(proposal, as_normalization(normalization), int(limit[0]) or None)

    def indices(self, generation, batch):
        """Noise indices (k,) of a batch of a generation's members."""
        rows, length = self.config.solver.noise_rows(self.task.dimension), self.task.directions.length
        return noise.sample_indices(self.config.seed, generation, batch, rows, len(self.table), length)

    def play_generation(self, offer, ahead):
        """Play whole populations until the batch is as large as it must be, all members in order.

        ahead: Offer of the generation to go on with; or None.
        Returns Results, noise indices (k,) and, on rank 0, the observation sums.
        """
        solver, payload = self.config.solver, self.solver.payload_size
        rows, indices, observed, batch = [], [], [], 0
        first = self.open_training(offer, self.generation, 0)
        if ahead and self.generation + 1 < self.config.stop.generations:
            self.open_training(ahead, self.generation + 1, 0)
        while True:
            session, taken = self.open_training(offer, self.generation, batch) if batch else first
            played, seen = self.play(session, (self.generation, "training", batch))
            rows.append(played)
            observed.append(seen)
            indices.append(taken)
            batch += 1
            episodes, steps = sum(map(len, rows)), sum(int(r["steps"].sum()) for r in rows)
            if solver.is_complete(episodes, steps):
                break
        results = collect(np.concatenate(rows), solver.episodes, payload)
        self.failed = np.isnan(results.returns).mean()
        return results, np.concatenate(indices), observed

    def open_training(self, offer, generation, batch):
        """The Session of a batch of a generation's members, and their noise indices (k,)."""
        task, payload, episodes = self.task, self.solver.payload_size, self.config.solver.episodes
        indices, seeds = self.indices(generation, batch), task.training_seeds(generation, batch)
        notes = np.zeros((len(seeds), payload + self.solver.wants_behaviour * task.behaviour_size))

        def write(rollout, out):
            notes[rollout, :payload] = self.solver.write(offer.proposal, indices, rollout // episodes, out)

        sampled, chance = task.training_samples(generation, batch), task.action_seeds(generation, batch)
        work = Work(seeds, sampled, write, notes, notes[:, payload:], chance, training=True, limit=offer.limit)
        return self.open_session(work, offer.normalization, (generation, "training", batch)), indices

    def open_session(self, work, normalization, key):
        """The Session of this key; one that was open already goes on.

        Where a rank was lost, what the others have played of it is not played again.
        """
        if key not in self.sessions:
            session, todo = self.salvaged.pop(key, None) or Session(work, normalization), np.arange(len(work.seeds))
            if self.salvaging:
                done, _ = self.comm.allgather(session.found()["rollout"].copy())
                todo = np.setdiff1d(todo, done)
            session.todo, session.tickets = todo, self.comm.tickets(len(todo))
            self.sessions[key] = session
        return self.sessions[key]

    def play(self, session, key):
        """Play a Session on all ranks, and where this one runs dry go on with the coming generation's.

        key: names the work.  Returns ROLLOUT rows in order and, on rank 0, observation sums in order.
        """
        self.sessions = {name: kept for name, kept in self.sessions.items() if name[0] >= self.generation}
        ahead = self.sessions.get((self.generation + (key[1] == "training"), "training", 0))
        meeting, began = self.comm.meeting(), time.perf_counter_ns()
        self.task.player.play(session, self.comm.node_size, ahead, meeting.is_over, self.giving_up)
        busy = time.perf_counter_ns() - began
        self.warn(session, key)
        if ahead:
            meeting.wait()
        asked = ABANDON if self.giving_up() else STOP if self.signals.raised else CONTINUE
        rows, said = self.comm.allgather(with_notes(session.found(), session.work.notes), (asked, busy))
        flag = int(said[:, 0].max())
        self.flag = max(self.flag, flag)
        self.busy.append(said[:, 1] / 1e9)
        if flag == ABANDON:
            raise Abandoned
        observed = np.array(session.observed, observation_record(self.task.observation_size))
        if self.task.observation_size and session.work.sampled.any():
            observed = self.comm.gather(observed)
        return in_order(rows), None if observed is None else in_order(observed)

    def giving_up(self):
        """Whether this rank, or one on its node, was told to stop longer ago than the grace it has."""
        if self.signals.expired(self.config.stop.grace):
            self.comm.give_up()
        return self.comm.given_up

    def warn(self, session, key):
        """Log the failures of a Session on this rank.  key: names the work."""
        _, kind, batch = key
        solver, environment = self.config.solver, self.config.environment.id
        for rollout, message in session.failures.items():
            member, episode = divmod(rollout, solver.episodes)
            who = f"member {batch * solver.members(self.task.dimension) + member}, episode {episode}"
            generation, effect = self.generation + 1, "it ranks worst"
            if kind == "evaluation":
                who, generation, effect = f"evaluation, episode {rollout}", self.generation, "there is no mean"
            log.warning(
                "%s, generation %d, %s (environment seed %d) failed: %s; %s",
                environment,
                generation,
                who,
                session.work.seeds[rollout],
                message,
                effect,
            )

    def sum_moments(self, proposal, indices, results):
        """The moments (orders, d) on rank 0, each rank having summed its block of coordinates."""
        weights = self.solver.weigh(results, proposal)
        indices = indices[: weights.linear.shape[1]]  # none where the solver wants no moments
        bounds = split(self.task.dimension, self.comm.size)
        start, stop = bounds[self.comm.rank : self.comm.rank + 2]
        return self.comm.gather_blocks(self.solver.moments(indices, weights, start, stop), bounds)

    def evaluation_due(self, reason):
        every = self.config.evaluation.every
        return reason not in ("signal", "failures") and (reason or (every and self.generation % every == 0))

    def evaluate(self):
        """Play held-out episodes with the mean; again with as many fresh ones when it seems solved."""
        target, episodes = self.config.stop.target, self.config.evaluation.episodes
        vectors = self.learner and [self.solver.mean, self.learner.normalizer.mean_and_deviation().ravel()]
        mean, normalization = self.comm.broadcast(vectors)
        normalization = as_normalization(normalization)
        first = self.play_mean(mean, normalization, 0, episodes)
        if target is None or not first.mean >= target:
            return first
        second = self.play_mean(mean, normalization, 1, episodes)
        both = (np.concatenate(pair) for pair in ((first.returns, second.returns), (first.lengths, second.lengths)))
        return Evaluation(*both, confirmed=second.mean >= target)

    def play_mean(self, mean, normalization, attempt, episodes):
        """An Evaluation of `mean` on seeds that belong to (seed, generation, attempt)."""
        if self.task.policy is None:
            episodes = 1  # a function has no luck
        seeds = self.task.evaluation_seeds(self.generation, attempt, episodes)

        def write(rollout, out):
            out[:] = mean

        work = Work(seeds, np.zeros(episodes, bool), write, np.zeros((episodes, 0)))
        key = self.generation, "evaluation", attempt
        rows, _ = self.play(self.open_session(work, normalization, key), key)
        return Evaluation(rows["total"], rows["steps"])


def in_order(rows):
    """Records in the order of their rollouts."""
    return rows[np.argsort(rows["rollout"])]


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
    """Results of members from the ROLLOUT rows of their episodes, in order.

    payload: how many of the notes are the solver's; the others are the behaviour.
    """
    totals, signs, steps = (rows[name].reshape(-1, episodes) for name in ("total", "signs", "steps"))
    notes = rows["notes"] if "notes" in rows.dtype.names else np.zeros((len(rows), 0))
    notes = notes.reshape(len(totals), episodes, -1)
    behaviours = notes[:, :, payload:].mean(axis=1)
    return Results(totals.mean(axis=1), signs.mean(axis=1), steps.sum(axis=1), notes[:, 0, :payload], behaviours)
