"""What a run will cost, worked out before it starts."""

import numpy as np

from mpies.rollouts import ROLLOUT, observation_record
from mpies.task import Task
from solvers import find_solver
from solvers.base import Results

PROCESS = 130 * 2**20  # bytes: Python with NumPy, EnvPool and MPI, measured as PSS of an idle rank


def cost(config, ranks):
    """Predicted bytes of a run: a dict of names to numbers.  Builds the environment to learn its sizes."""
    task = Task(config)
    solver, dimension, observations = config.solver, task.dimension, task.observation_size
    rollouts = solver.members(dimension) * solver.episodes
    sampled = rollouts * config.policy.statistics_fraction if observations else 0
    lanes = getattr(getattr(task.world, "lanes", None), "__index__", lambda: 1)()
    sent, orders, notes, rows = traffic(config, task)
    return {
        "parameters": dimension,
        "normals": task.directions.length if solver.noise_rows(dimension) else 0,
        "noise": 4 * task.directions.length * solver.noise_rows(dimension),
        "table": (4 * config.noise.size if solver.noise_rows(dimension) else 0) + 4 * dimension * rows,
        "rank": PROCESS + 4 * dimension * (lanes + 3),
        "root": solver.memory(dimension),
        "broadcast": sent + 8 * observations,
        "gathered": rollouts * (ROLLOUT.itemsize + 8 * notes)
        + round(sampled * observation_record(observations).itemsize),
        "blocks": orders * 4 * dimension * (ranks - 1) // ranks,
    }


def traffic(config, task):
    """What a generation of the solver moves.

    Returns the bytes of its proposal, the moments of d numbers that it wants, the numbers noted of each rollout,
    and the rows of d parameters it keeps in shared memory.
    """
    dimension, options = task.dimension, config.solver
    solver = find_solver(options.kind)(options, dimension)
    width = solver.wants_behaviour * task.behaviour_size
    if not options.noise_rows(dimension):  # whole candidates; their solver may be too large to be made for this
        return 4 * dimension * (1 + solver.rows), 0, solver.payload_size + width, solver.rows
    solver.start(np.zeros(dimension, np.float32))
    proposal, members = solver.ask(), options.members(dimension)
    results = Results.of(np.arange(members), np.ones((members, solver.payload_size)), np.zeros((members, width)))
    weights = solver.weigh(results, proposal)
    sent = sum(vector.nbytes for vector in proposal.vectors())
    return sent, len(weights.linear) + len(weights.square), solver.payload_size + width, solver.rows


def node_memory(found, ranks):
    """Bytes that a node with `ranks` ranks needs, rank 0 among them.  found: what `cost` returns."""
    return found["table"] + ranks * found["rank"] + found["root"]


def describe_cost(config, ranks):
    """The cost as text for a person: memory of a node with `ranks` ranks, and what travels."""
    found = cost(config, ranks)
    memory = node_memory(found, ranks)
    return (
        f"\nparameters              {found['parameters']:,}\n"
        f"noise of a generation   {_bytes(found['noise'])}, {found['normals']:,} normals a direction\n"
        f"memory of a node        {_megabytes(memory)} with {ranks} ranks "
        f"(table {_megabytes(found['table'])}, each rank about {_megabytes(found['rank'])})\n"
        f"sent per generation     {_bytes(found['broadcast'])} broadcast to each rank, "
        f"{_bytes(found['gathered'])} gathered from members, {_bytes(found['blocks'])} of the update"
    )


def _megabytes(count):
    return f"{count / 2**20:,.0f} MB"


def _bytes(count):
    return f"{count:,} B" if count < 10_000 else f"{count / 1000:,.0f} kB" if count < 1e7 else f"{count / 1e6:,.0f} MB"
