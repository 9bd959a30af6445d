"""Any generation of a run again, from its first checkpoint and its ledger."""

import numpy as np

from mpies import ledger, store
from mpies.config import as_yaml, resolved, validate
from mpies.film import show_episodes
from mpies.learner import as_normalization, make_offer, named_offer, offer_in, part, results_of
from mpies.normalizer import Normalizer
from mpies.rollouts import Work, play_alone
from mpies.task import Task
from solvers import find_solver, noise


class Replay:
    """The solver of a run as it was after `generation`; needs no environment.

    state: names to arrays, what besides the solver was recorded at that time.  digest: of the whole state, as
    recorded.  Raises StoreError when the run lacks what is needed.
    """

    def __init__(self, path, generation):
        self.config = validate(store.read_config(path), f"{path}/config.yaml")
        first = store.checkpoints(path)
        if not first or not first[-1].name.endswith("-00000000.h5"):
            raise store.StoreError(f"{path}: lacks the first checkpoint, generation-00000000.h5, where replays begin")
        arrays, attributes = store.read(first[-1])
        solver_state = part(arrays, "solver/")
        dimension = len(solver_state["mean"])
        self.solver = find_solver(self.config.solver.kind)(self.config.solver, dimension, self.config.seed)
        self.table = self._table(dimension)
        self.solver.table = self.table
        self.solver.restore(solver_state)
        self.rows = None
        self.state, self.digest = arrays, attributes["digest"]
        self.ahead = offer_in(arrays)
        for record, _ in ledger.read(path / "ledger.bin"):
            if record["generation"] > generation:
                break
            self.repeat(record)
        if self.solver.generation != generation:
            raise store.StoreError(
                f"{path}: generation {generation} is not in its ledger, which ends at {self.solver.generation}"
            )

    def _table(self, dimension):
        size = self.config.noise.size if self.config.solver.noise_rows(dimension) else 0
        table = np.empty(size, np.float32)
        for block in range(noise.blocks(size)):
            noise.fill(table, self.config.seed, block)
        return table

    def offer(self):
        """What ranks were sent of the coming generation, as make_offer."""
        return self.ahead or self._newest_offer()

    def _newest_offer(self):
        return make_offer(self.solver, self.normalizer(), self.state.get("limit"))

    def normalizer(self):
        """The observation statistics as they were."""
        normalizer = Normalizer(len(self.state["normalizer/total"]))
        normalizer.restore(part(self.state, "normalizer/"))
        return normalizer

    def propose(self):
        """The Proposal of the coming generation."""
        if (rows := self.solver.ask().rows) is not None:
            self.rows = rows
        *vectors, _, _ = self.offer()
        return self.solver.Proposal(*vectors, rows=self.rows)

    def indices(self, batch):
        """Noise indices (k,) of a batch of the coming generation's members."""
        count, solver = self.config.solver.noise_rows(self.solver.dimension), self.solver
        length = solver.directions.length
        return noise.sample_indices(self.config.seed, solver.generation, batch, count, len(self.table), length)

    def repeat(self, record):
        """Take the step of the coming generation, from its ledger record."""
        results, proposal, dimension = results_of(record), self.propose(), self.solver.dimension
        batches = range(len(results.returns) // self.config.solver.members(dimension))
        weights = self.solver.weigh(results, proposal)
        indices = np.concatenate([self.indices(batch) for batch in batches])[: weights.linear.shape[1]]
        newest = [vector.copy() for vector in self._newest_offer()] if self.ahead else []
        self.solver.tell(proposal, results, self.solver.moments(indices, weights, 0, dimension))
        self.ahead = newest
        self.state, self.digest = record, str(record["digest"])

    def save(self, path):
        """Write the mean as a policy file."""
        arrays = {"parameters": self.solver.mean, "normalization": self.normalizer().mean_and_deviation()}
        attributes = {"config": as_yaml(resolved(self.config)), "generation": self.solver.generation}
        store.write_atomically(path, store.pack(arrays, attributes))

    def faithful(self):
        """Whether the state is, to the bit, the recorded one."""
        state = {f"solver/{name}": value for name, value in self.solver.state().items()}
        state |= {name: self.state[name] for name in self.state if name.startswith("normalizer/") or name == "limit"}
        state |= named_offer(self.ahead)
        return store.digest(state) == self.digest


def play_member(path, generation, member, film=None):
    """Play one recorded member of a generation again, and once more to a film where one is given.

    Returns the recorded return, the return now and {episode: what went wrong}.
    Raises StoreError when there is no such member.
    """
    before = Replay(path, generation - 1)
    record = next((r for r, _ in ledger.read(path / "ledger.bin", after=generation - 1)), None)
    if record is None or member >= len(record["returns"]):
        members = 0 if record is None else len(record["returns"])
        raise store.StoreError(f"{path}: generation {generation} has {members} members on record, no number {member}")
    config, task = before.config, Task(before.config)
    proposal = before.propose()
    batch, number = divmod(member, config.solver.members(task.dimension))
    indices, episodes = before.indices(batch), config.solver.episodes
    its_own = slice(number * episodes, (number + 1) * episodes)
    seeds, chance = task.training_seeds(generation - 1, batch)[its_own], task.action_seeds(generation - 1, batch)
    *_, normalization, limit = before.offer()
    normalization = as_normalization(normalization) if task.observation_size else None

    def write(_rollout, out):
        before.solver.write(proposal, indices, number, out)

    limit = int(limit[0]) or None
    chance = None if chance is None else chance[its_own]
    work = Work(seeds, np.zeros(episodes, bool), write, noise=chance, training=True, limit=limit)
    rows, failures = play_alone(task.player, work, normalization)
    totals = rows["total"]
    if film and not failures:
        show_episodes(config, work, normalization, film)
    return float(record["returns"][member]), float(totals.reshape(1, -1).mean(axis=1)[0]), failures
