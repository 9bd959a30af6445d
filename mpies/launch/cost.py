"""Predict the memory and the traffic of a run before it starts."""

import contextlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mpies.config.schema import Config, NoiseSection
from mpies.core.text import counted
from mpies.envs.base import VectorEnv
from mpies.rollouts.batch import observation_record, rollout_record
from mpies.solvers.adapters.own import OwnSolver
from mpies.solvers.base import Results
from mpies.training.memory import PARAMETERS, SOLVER, require_memory
from mpies.training.task import Task
from mpies.training.update import make_solver

PROCESS = 130 * 2**20  # bytes: Python with NumPy, EnvPool and MPI, measured as the PSS of an idle rank

MADE_UP = 10_000  # members of a made-up generation at most: how many vectors a solver wants does not hang on it


@dataclass(frozen=True)
class NodeMemory:
    """What a node must hold, in bytes.

    table: in shared memory, once on each node.  rank: of each rank.  root: of rank 0 besides.
    """

    table: int
    rank: int
    root: int

    def total(self, ranks: int) -> int:
        """Bytes that a node with `ranks` ranks needs, rank 0 among them."""
        return self.table + ranks * self.rank + self.root


# What a run with a small policy needs.
SMALL_RUN = NodeMemory(table=4 * NoiseSection().size, rank=PROCESS, root=0)


class Traffic(NamedTuple):
    """What the solver moves in a generation.

    proposal: bytes that it broadcasts, a mean over the generations.  moments: how many vectors (d,) it wants summed.
    payload: numbers that it wants to know of each rollout.  behaviour: numbers about the end of each episode.
    rows: how many vectors (d,) it keeps in the shared memory of each node.
    """

    proposal: int
    moments: int
    payload: int
    behaviour: int
    rows: int


@dataclass(frozen=True)
class Cost:
    """What a run needs; all sizes in bytes.

    parameters: d.  normals: random numbers that a member's direction is made of; 0 without a noise table.
    noise: read from the noise table in a generation.
    broadcast: sent to each rank in a generation.  gathered: sent from all members together.
    blocks: of the update, sent to rank 0 by all other ranks together.
    """

    memory: NodeMemory
    parameters: int
    normals: int
    noise: int
    broadcast: int
    gathered: int
    blocks: int


def predict_cost(config: Config, ranks: int) -> Cost:
    """The Cost of a run on `ranks` ranks.  Builds the environment to learn its sizes."""
    with contextlib.closing(Task(config)) as task:
        return _cost_of_task(config, task, ranks)


def _cost_of_task(config: Config, task: Task, ranks: int) -> Cost:
    needs = task.training_needs()
    require_memory({name: needs[name] for name in (PARAMETERS, SOLVER)})  # they are used to predict the traffic
    solver, dimension, observations = config.solver, task.dimension, task.observation_size
    rollouts = solver.members(dimension) * solver.episodes
    sampled = rollouts * config.policy.statistics_fraction if observations else 0
    slots = task.env.slots if isinstance(task.env, VectorEnv) else 1
    rows = solver.noise_rows(dimension)
    traffic = predict_traffic(config, task)
    memory = NodeMemory(
        table=(4 * config.noise.size if rows else 0) + 4 * dimension * traffic.rows,
        rank=PROCESS + 4 * dimension * (slots + 3) + task.directions.memory,
        root=solver.memory(dimension),
    )
    return Cost(
        memory=memory,
        parameters=dimension,
        normals=task.directions.length if rows else 0,
        noise=4 * task.directions.length * rows,
        broadcast=traffic.proposal + 8 * observations,
        gathered=rollouts * rollout_record(traffic.payload, traffic.behaviour).itemsize
        + round(sampled * observation_record(observations).itemsize),
        blocks=traffic.moments * 4 * dimension * (ranks - 1) // ranks,
    )


def predict_traffic(config: Config, task: Task) -> Traffic:
    """The Traffic of the config's solver, from a generation with made-up results."""
    dimension, options = task.dimension, config.solver
    solver = make_solver(config, dimension)
    behaviour = task.behaviour_size if solver.wants_behaviour else 0
    if not options.noise_rows(dimension):  # whole candidates; the solver's state may be too large to make it here
        return Traffic(4 * dimension * (1 + solver.rows), 0, solver.payload_size, behaviour, solver.rows)
    solver.start(np.zeros(dimension, np.float32))
    proposal, members = solver.ask(), options.members(dimension)
    if not isinstance(solver, OwnSolver):  # which gets the results of whole populations
        members = min(members, MADE_UP + options.plays_mean)
    payload, behaviours = np.ones((members, solver.payload_size)), np.zeros((members, behaviour))
    with np.errstate(all="ignore"):  # a huge learning rate, for instance
        weights = solver.compute_weights(Results.of(np.arange(members), payload, behaviours), proposal)
    sent = sum(vector.nbytes for vector in proposal.vectors())
    if proposal.rows is not None:
        sent += proposal.rows.nbytes // options.rows_last
    moments = len(weights.linear) + len(weights.square)
    return Traffic(sent, moments, solver.payload_size, behaviour, solver.rows)


def describe_cost(config: Config, ranks: int) -> str:
    """The Cost as text for a person: the memory of a node with all `ranks` ranks, and what is sent."""
    cost = predict_cost(config, ranks)
    memory = cost.memory
    by_size = config.solver.describe_defaults(cost.parameters)
    defaults = f"defaults of the solver  {by_size}\n" if by_size else ""
    return (
        f"\nparameters              {cost.parameters:,}\n"
        f"{defaults}noise of a generation   {_bytes(cost.noise)}, {cost.normals:,} normals a direction\n"
        f"memory of a node        {_megabytes(memory.total(ranks))} with {counted(ranks, 'rank')} "
        f"(table {_megabytes(memory.table)}, each rank about {_megabytes(memory.rank)})\n"
        f"sent per generation     {_bytes(cost.broadcast)} broadcast to each rank, "
        f"{_bytes(cost.gathered)} gathered from members, {_bytes(cost.blocks)} of the update"
    )


def _megabytes(count: float) -> str:
    return f"{count / 2**20:,.0f} MB"


def _bytes(count: float) -> str:
    return f"{count:,} B" if count < 10_000 else f"{count / 1000:,.0f} kB" if count < 1e7 else f"{count / 1e6:,.0f} MB"
