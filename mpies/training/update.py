"""The update of a generation on all ranks; the same live, resumed and replayed."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.comm import Communicator
from mpies.comm.stopwatch import stopwatch
from mpies.config.loading import find_solver_class
from mpies.config.schema import Config
from mpies.core.errors import SolverProblem
from mpies.solvers.base import Results, Solver
from mpies.solvers.sampling import noise
from mpies.solvers.sampling.directions import Directions
from mpies.solvers.update import sum_moments
from mpies.training.generation import GenerationSpec, Part, Population
from mpies.training.learner import Learner

ROWS_KEY = "solver.population (solver.parents of deep_ga)"  # decides how many rows a proposal has
FIRST_EARLY = 2  # the first generation, counted from 0, that may have an early part


def make_solver(config: Config, dimension: int, directions: Directions | None = None) -> Solver[Any, Any]:
    """The solver of a config for `dimension` parameters.  directions: how members are cut from the noise table."""
    return find_solver_class(config.solver.kind)(config.solver, dimension, config.seed, directions=directions)


class Updater:
    """The solver on all ranks with its noise table.

    learner: the state of the run, on rank 0; None elsewhere.
    generation: how many generations have been applied.
    early: how many members of a generation may begin before the previous generation is complete.
    early_spec: what those of the coming generation are sampled from, once it has been broadcast.
    rows: (r, d) of whole candidates, in the shared memory of the node.
    Raises SolverProblem where generations overlap and the user's solver has rows.
    """

    def __init__(self, config: Config, solver: Solver[Any, Any], comm: Communicator) -> None:
        self.config, self.solver, self.comm = config, solver, comm
        self.learner: Learner | None = None
        self.generation = 0
        self._began: float | None = None  # when the coming generation began, on the stopwatch; None before
        self.early = config.solver.early_members(config.overlap, solver.dimension)
        if self.early and solver.rows:  # early members would need the rows of two generations
            raise SolverProblem(
                f"solver.kind {config.solver.kind}: overlap does not work with rows; leave it out, or send what the "
                "members need as vectors of the proposal"
            )
        self.early_spec: GenerationSpec | None = None
        self._upcoming: Part | None = None  # the early part of the generation after the coming one

    @property
    def table_size(self) -> int:
        """Normals of the noise table; 0 where the solver needs none."""
        return self.config.noise.size if self.config.solver.noise_rows(self.solver.dimension) else 0

    def build_table(self, table: npt.NDArray[np.float32] | None = None) -> None:
        """Make the noise table, and room for the rows of whole candidates, in the shared memory of each node.

        Rank r of the n ranks of a node fills blocks r, r + n, r + 2 n, ...  Raises NotEnoughSharedMemory.

        table: a noise table (table_size,) of the config's seed that is there already.
        """
        comm, dimension, size = self.comm, self.solver.dimension, self.table_size
        if table is None:
            table = comm.allocate_shared(size, np.float32)
            for block in range(comm.node_rank, noise.blocks(size), comm.node_size):
                noise.fill(table, self.config.seed, block)
        self.solver.table = table
        rows = comm.allocate_shared(self.solver.rows * dimension, np.float32, ROWS_KEY)
        self.rows = rows.reshape(-1, dimension)
        comm.node_barrier()

    def begin(self, learner: Learner | None) -> None:
        """Go on from this learner, on all ranks.  learner: on rank 0; None elsewhere."""
        self.learner, self.early_spec, self._upcoming = learner, None, None
        before = self.generation
        self.generation = self.comm.broadcast_int(learner.clock.generation if learner else None)
        if self.generation != before:
            self._began = None

    def next_parts(self) -> tuple[list[Part], Part | None]:
        """The parts of the coming generation and, where generations overlap, the early part of the one after it.

        The first two generations have no early part: observation statistics and momentum begin with their results.
        """
        learner, began = self.learner, self._began
        self._began = stopwatch.now() if began is None else began  # after a loss, a generation goes on
        parts, members = [], self.config.solver.members(self.solver.dimension)
        if self.early and self.generation >= FIRST_EARLY:
            self.early_spec = self.early_spec or self.broadcast_spec(learner.early_spec if learner else None)
            parts.append(Part(self.early_spec, 0, self.early))
        if not parts or self.early < members:
            newest = self.broadcast_spec(learner.ask() if learner else None)
            parts.append(Part(newest, self.early if parts else 0, members))
        if self.early and self.generation + 1 >= FIRST_EARLY:
            self._upcoming = Part(self.broadcast_spec(learner.ask_early() if learner else None), 0, self.early)
        return parts, self._upcoming

    def broadcast_spec(self, spec: GenerationSpec | None) -> GenerationSpec:
        """Rank 0's spec on every rank."""
        vectors = self.comm.broadcast(spec.vectors() if spec else None)
        if len(self.rows):  # whole candidates
            self.comm.broadcast_rows(self.solver.ask().rows if self.comm.is_root else None, self.rows)
        return GenerationSpec.from_vectors(vectors, self.solver.Proposal, self.rows)

    def broadcast_mean(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32] | None]:
        """The newest mean (d,) and the normalization (2, o), None without one, on every rank."""
        vectors = None
        if learner := self.learner:
            vectors = [learner.solver.mean, learner.normalizer.mean_and_deviation().ravel()]
        mean, normalization = self.comm.broadcast(vectors)
        return mean, normalization.reshape(2, -1) if len(normalization) else None

    def apply(self, parts: Sequence[Part], population: Population) -> None:
        """Take the step of a generation: each rank sums its block of the moments, rank 0 tells the solver.

        The step treats all members as sampled from the newest spec, that of the last part.
        """
        spec = parts[-1].spec
        with np.errstate(all="ignore"):  # a step may overflow; the returns of its members show it
            moments = sum_moments(self.solver, spec.proposal, population.results, population.indices, self.comm)
            if self.learner:
                assert moments is not None and self._began is not None
                self.learner.tell(spec, population, moments, stopwatch.now() - self._began)
        self._began = None
        self.early_spec, self._upcoming = self._upcoming.spec if self._upcoming else None, None
        self.generation += 1

    def replay(self, record: Mapping[str, Any] | None) -> None:
        """Take the step of a generation again, from its ledger record.  record: on rank 0."""
        parts, _ = self.next_parts()
        self.apply(parts, self._recorded_population(record))

    def _recorded_population(self, record: Mapping[str, Any] | None) -> Population:
        """The population of a ledger record, on every rank."""
        names = [entry.name for entry in fields(Results)]
        shapes = self.comm.broadcast([np.array(record[name].shape) for name in names] if record else None)
        arrays = self.comm.broadcast([record[name].ravel() for name in names] if record else None)
        results = Results(*(array.reshape(shape) for array, shape in zip(arrays, shapes, strict=True)))
        batches = range(len(results.returns) // self.config.solver.members(self.solver.dimension))
        indices = [self.solver.population_indices(self.generation, batch) for batch in batches]
        return Population(results, np.concatenate(indices), record=record)
