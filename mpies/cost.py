"""What a run will cost, worked out before it starts."""

from mpies.rollouts import ROLLOUT, observation_record
from mpies.task import Task

PROCESS = 130 * 2**20  # bytes: Python with NumPy, EnvPool and MPI, measured as PSS of an idle rank


def cost(config, ranks):
    """Predicted bytes of a run: a dict of names to numbers.  Builds the environment to learn its sizes."""
    task = Task(config)
    solver, dimension, observations = config.solver, task.dimension, task.observation_size
    rollouts = solver.population * solver.episodes
    sampled = rollouts * config.policy.statistics_fraction if observations else 0
    lanes = getattr(getattr(task.world, "lanes", None), "__index__", lambda: 1)()
    return {
        "parameters": dimension,
        "table": 4 * config.noise.size,
        "rank": PROCESS + 4 * dimension * (lanes + 3),
        "root": 4 * dimension * 6,  # mean, two moments of Adam, gradient, step, proposal
        "broadcast": 4 * (dimension + 1 + 2 * observations),
        "gathered": rollouts * ROLLOUT.itemsize + round(sampled * observation_record(observations).itemsize),
        "blocks": 4 * dimension * (ranks - 1) // ranks,
    }


def describe_cost(config, ranks):
    """The cost as text for a person: memory of a node with `ranks` ranks, and what travels."""
    found = cost(config, ranks)
    memory = found["table"] + ranks * found["rank"] + found["root"]
    return (
        f"\nparameters              {found['parameters']:,}\n"
        f"memory of a node        {_megabytes(memory)} with {ranks} ranks "
        f"(table {_megabytes(found['table'])}, each rank about {_megabytes(found['rank'])})\n"
        f"sent per generation     {_bytes(found['broadcast'])} broadcast to each rank, "
        f"{_bytes(found['gathered'])} gathered from members, {_bytes(found['blocks'])} of the update"
    )


def _megabytes(count):
    return f"{count / 2**20:,.0f} MB"


def _bytes(count):
    return f"{count:,} B" if count < 10_000 else f"{count / 1000:,.0f} kB" if count < 1e7 else f"{count / 1e6:,.0f} MB"
