"""The update of a generation on all ranks; the same live, resumed and replayed."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.comm import Communicator
from mpies.config.schema import Config
from mpies.paths import start_folder
from mpies.solvers import find_solver, noise
from mpies.solvers.base import Results, Solver
from mpies.solvers.directions import Directions
from mpies.solvers.update import sum_moments
from mpies.training.generation import GenerationSpec, Population
from mpies.training.learner import Learner


def make_solver(config: Config, dimension: int, directions: Directions | None = None) -> Solver[Any, Any]:
    """The solver of a config for `dimension` parameters.  directions: how members are cut from the noise table."""
    return find_solver(config.solver.kind, start_folder())(config.solver, dimension, config.seed, directions=directions)


class Updater:
    """The solver on all ranks with its noise table.

    learner: the state of the run, on rank 0; None elsewhere.
    generation: how many generations have been applied.
    next_spec: where generations overlap, the spec of the coming generation, once it has been broadcast.
    """

    def __init__(self, config: Config, solver: Solver[Any, Any], comm: Communicator) -> None:
        self.config, self.solver, self.comm = config, solver, comm
        self.learner: Learner | None = None
        self.generation = 0
        self.next_spec: GenerationSpec | None = None

    def build_table(self) -> None:
        """Make the noise table, and room for the rows of whole candidates, in the shared memory of each node.

        Rank r of the n ranks of a node fills blocks r, r + n, r + 2 n, ...  Raises NotEnoughSharedMemory.
        """
        comm, dimension = self.comm, self.solver.dimension
        size = self.config.noise.size if self.config.solver.noise_rows(dimension) else 0
        table = comm.allocate_shared(size, np.float32)
        for block in range(comm.node_rank, noise.blocks(size), comm.node_size):
            noise.fill(table, self.config.seed, block)
        self.solver.table = table
        self.rows = comm.allocate_shared(self.solver.rows * dimension, np.float32).reshape(-1, dimension)
        comm.node_barrier()

    def begin(self, learner: Learner | None) -> None:
        """Go on from a learner.  learner: on rank 0."""
        self.learner, self.next_spec = learner, None
        self.generation = self.comm.broadcast_int(learner.clock.generation if learner else None)

    def next_specs(self) -> tuple[GenerationSpec, GenerationSpec | None]:
        """The spec of the coming generation and, where generations overlap, of the one after it."""
        learner, self._began = self.learner, time.perf_counter()
        if not self.config.overlap:
            return self.broadcast_spec(learner.ask() if learner else None), None
        spec = self.next_spec or self.broadcast_spec(learner.next_spec if learner else None)
        self.next_spec = self.broadcast_spec(learner.ask() if learner else None)
        return spec, self.next_spec

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

    def apply(self, spec: GenerationSpec, population: Population) -> None:
        """Take the step of a generation: each rank sums its block of the moments, rank 0 tells the solver."""
        with np.errstate(all="ignore"):  # a step may overflow; the returns of its members show it
            moments = sum_moments(self.solver, spec.proposal, population.results, population.indices, self.comm)
            if self.learner:
                assert moments is not None
                self.learner.tell(spec, population, moments, time.perf_counter() - self._began)
        self.generation += 1

    def replay(self, record: Mapping[str, Any] | None) -> None:
        """Take the step of a generation again, from its ledger record.  record: on rank 0."""
        spec, _ = self.next_specs()
        self.apply(spec, self._recorded_population(record))

    def _recorded_population(self, record: Mapping[str, Any] | None) -> Population:
        """The population of a ledger record, on every rank."""
        names = list(Results.__dataclass_fields__)
        shapes = self.comm.broadcast([np.array(record[name].shape) for name in names] if record else None)
        arrays = self.comm.broadcast([record[name].ravel() for name in names] if record else None)
        results = Results(*(array.reshape(shape) for array, shape in zip(arrays, shapes, strict=True)))
        batches = range(len(results.returns) // self.config.solver.members(self.solver.dimension))
        indices = [self.solver.population_indices(self.generation, batch) for batch in batches]
        return Population(results, np.concatenate(indices), record=record)
