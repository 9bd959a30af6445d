"""The update of a generation on all ranks; the same live, resumed and replayed."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from mpies.comm import Communicator
from mpies.comm.stopwatch import stopwatch
from mpies.comm.together import do_together
from mpies.config.schema import Config
from mpies.solvers.base import AnySolver, Results
from mpies.solvers.registry import find_solver
from mpies.solvers.sampling import noise
from mpies.solvers.sampling.directions import Directions
from mpies.solvers.sum_moments import sum_moments
from mpies.training.evaluation.generation import GenerationSpec, MeanPolicy, Part, PlayedGeneration
from mpies.training.evaluation.noise_tables import NoiseTables
from mpies.training.evaluation.overlap import FIRST, count_early_members
from mpies.training.learner import Learner

BONUS_SHARE = 0.95  # of the first generation's mean reward of a step; not all, since CartPole gives nothing else
ROWS_KEY = "solver.population (solver.parents of deep_ga)"  # decides how many rows a proposal has


def make_solver(config: Config, dimension: int, directions: Directions | None = None) -> AnySolver:
    """The solver of a config for `dimension` parameters.  directions: how members are cut from the noise table."""
    return find_solver(config.solver.kind)(config.solver, dimension, config.seed, directions=directions)


class Updater:
    """The solver on all ranks with its noise table.  All ranks make one together.

    tables: those of the node, where this run shares them with other runs of the job; None for one of its own.

    learner: the state of the run, on rank 0; None elsewhere.
    generation: how many generations have been applied.
    bonus: what reward_shift auto subtracts from the reward of each step.
    rows: (r, d) of whole candidates, in the shared memory of the node.
    Raises NotEnoughSharedMemory, and SolverProblem where generations overlap and the user's solver has rows.
    """

    def __init__(
        self, config: Config, solver: AnySolver, comm: Communicator, tables: NoiseTables | None = None
    ) -> None:
        self.config, self.solver, self.comm = config, solver, comm
        self.learner: Learner | None = None
        self.generation = 0
        self.bonus = 0.0
        self._began: float | None = None  # when the coming generation began, on the stopwatch; None before
        self._early = count_early_members(config, solver)
        self._give_table(tables)
        rows = comm.allocate_shared(solver.rows * solver.dimension, np.float32, ROWS_KEY)
        self.rows = rows.reshape(-1, solver.dimension)
        comm.node_barrier()

    def _give_table(self, tables: NoiseTables | None) -> None:
        """Give the solver the noise table in the shared memory of each node; (0,) where it needs none."""
        size = self.config.noise.size if self.config.solver.noise_rows(self.solver.dimension) else 0
        comm, seed, count = self.comm, self.config.seed, noise.blocks(size)
        first = comm.node_rank * count // comm.node_size
        if tables:
            filling = do_together(comm, lambda: tables.get(seed, size, first))
        else:
            table, is_filled = comm.allocate_shared(size, np.float32), comm.allocate_shared(count, np.uint8)
            filling = noise.Filling(table, is_filled, seed, first)
        self.solver.fill_later(filling)

    def begin(self, learner: Learner | None) -> None:
        """Go on from this learner, on all ranks.  learner: on rank 0; None elsewhere."""
        self.learner = learner
        before = self.generation
        state = [np.array([learner.clock.generation]), np.array([learner.bonus])] if learner else None
        generation, bonus = self.comm.broadcast(state)
        self.generation, self.bonus = int(generation[0]), float(bonus[0])
        if self.generation != before:
            self._began = None

    def next_parts(self) -> tuple[list[Part], Part | None]:
        """The parts of the coming generation and, where generations overlap, the early part of the one after it."""
        learner, members = self.learner, self.config.solver.members(self.solver.dimension)
        if self._began is None:  # else a rank was lost, and the generation goes on
            self._began = stopwatch.now()
        parts, upcoming = [], None
        first = self._early if self.generation >= FIRST else 0
        if first:
            parts.append(Part(self.broadcast_spec(learner.early.ready if learner else None), 0, first))
        if first < members:
            parts.append(Part(self.broadcast_spec(learner.ask() if learner else None), first, members))
        if self._early and self.generation + 1 >= FIRST:
            upcoming = Part(self.broadcast_spec(learner.ask_early() if learner else None), 0, self._early)
        return parts, upcoming

    def broadcast_spec(self, spec: GenerationSpec | None) -> GenerationSpec:
        """Rank 0's spec on every rank."""
        vectors = self.comm.broadcast(spec.vectors() if spec else None)
        if len(self.rows):  # whole candidates
            self.comm.broadcast_rows(self.solver.ask().rows if self.comm.is_root else None, self.rows)
        return GenerationSpec.from_vectors(vectors, self.solver.Proposal, self.rows)

    def broadcast_mean(self) -> MeanPolicy:
        """Rank 0's newest mean on every rank."""
        vectors = None
        if learner := self.learner:
            vectors = [learner.solver.mean, learner.normalizer.mean_and_deviation().ravel()]
        mean, normalization = self.comm.broadcast(vectors)
        return mean, normalization.reshape(2, -1) if len(normalization) else None

    def apply(self, parts: Sequence[Part], population: PlayedGeneration) -> None:
        """Take the step of a generation: each rank sums its block of the moments, rank 0 tells the solver.

        The step treats all members as sampled from the newest spec, that of the last part.
        """
        spec = parts[-1].spec
        results = population.results
        with np.errstate(all="ignore"):  # a step may overflow; the returns of its members show it
            if self.config.environment.reward_shift == "auto":
                lengths, finite = results.steps / self.config.solver.episodes, np.isfinite(results.returns)
                played = results.returns[finite]
                if not self.generation and len(played) and played.min() > 0:  # a bonus shows in every return
                    self.bonus = BONUS_SHARE * float(played.sum() / lengths[finite].sum())
                results = replace(results, returns=results.returns - self.bonus * lengths)
            moments = sum_moments(self.solver, spec.proposal, results, population.indices, self.comm)
            if self.learner:
                assert moments is not None and self._began is not None
                self.learner.bonus = self.bonus
                self.learner.tell(spec, results, population, moments, stopwatch.now() - self._began)
        self._began = None
        self.generation += 1

    def replay(self, record: Mapping[str, Any] | None) -> None:
        """Take the step of a generation again, from its ledger record.  record: on rank 0."""
        parts, _ = self.next_parts()
        self.apply(parts, self._recorded_population(record))

    def _recorded_population(self, record: Mapping[str, Any] | None) -> PlayedGeneration:
        """The population of a ledger record, on every rank."""
        names = [entry.name for entry in fields(Results)]
        shapes = self.comm.broadcast([np.array(record[name].shape) for name in names] if record else None)
        arrays = self.comm.broadcast([record[name].ravel() for name in names] if record else None)
        results = Results(*(array.reshape(shape) for array, shape in zip(arrays, shapes, strict=True)))
        batches = range(len(results.returns) // self.config.solver.members(self.solver.dimension))
        indices = [self.solver.population_indices(self.generation, batch) for batch in batches]
        return PlayedGeneration(results, np.concatenate(indices), record=record)
