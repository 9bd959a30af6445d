"""What a run or a sweep will cost, before it starts: memory, seconds and core hours."""

import contextlib
import math
from dataclasses import dataclass

from mpies.comm.limits import PARAMETERS, SOLVER, require_memory
from mpies.config.schema import Config, NoiseSection
from mpies.envs.base import VectorEnv
from mpies.launch.forecast.constants import Constants, Workload, fit_workload, play_first_policy
from mpies.launch.forecast.simulate import predict
from mpies.solvers.check import check_if_custom
from mpies.sweeps.folder import ENDED, SweepFolder
from mpies.sweeps.trials import HalvingOptions
from mpies.training.task import Task, training_needs
from mpies.training.update import make_solver

PATIENCE = 0.2  # seconds of play for each environment and policy
PROCESS = 130 * 2**20  # bytes: Python with NumPy, EnvPool and MPI, measured as the PSS of an idle rank


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


def examine_run(config: Config) -> tuple[Task, NodeMemory]:
    """The closed Task of a run, which tells its sizes, and what a node needs.  Tries a custom solver out."""
    with contextlib.closing(Task(config)) as task:
        memory = predict_memory(config, *measure_task(task))
        check_if_custom(make_solver(config, task.dimension, task.directions), task.behaviour_size)
        return task, memory


def measure_task(task: Task) -> tuple[int, int]:
    """The number d of a task's parameters, and how many episodes it plays side by side on a rank.

    Raises ConfigError where the parameters and the solver cannot fit anywhere.
    """
    needs = task.training_needs()
    require_memory({name: needs[name] for name in (PARAMETERS, SOLVER)})
    return task.dimension, task.env.slots if isinstance(task.env, VectorEnv) else 1


def predict_memory(config: Config, dimension: int, slots: int) -> NodeMemory:
    """What a node needs for a run.  dimension, slots: as of `measure_task`."""
    noise = 4 * config.noise.size if config.solver.noise_rows(dimension) else 0
    return NodeMemory(
        table=noise + 4 * dimension * make_solver(config, dimension).rows,
        rank=PROCESS + 4 * dimension * (slots + 3),
        root=config.solver.memory(dimension),
    )


class SweepForecast:
    """Predicts what the trials of a sweep take, on groups of ranks_per_run ranks.

    constants: what `mpies bench` measured; None has a few episodes of the first policies played here, on a machine that
    is assumed otherwise.  is_longest: whether all episodes are taken to be as long as they can be.
    configs: of all trials, by label, those at the ends of a sampler's ranges among them.
    """

    def __init__(
        self, folder: SweepFolder, ranks_per_run: int, constants: Constants | None = None, is_longest: bool = False
    ) -> None:
        self._folder, self._ranks, self._constants, self._is_longest = folder, ranks_per_run, constants, is_longest
        self._trials = folder.list_to_check()
        self.configs = {trial.label: folder.sweep.config(trial) for trial in reversed(self._trials)}
        self._sizes: dict[str, tuple[int, int]] = {}  # environment and policy to what `measure_task` returned
        self._workloads: dict[str, Workload] = {}  # environment and policy to what was played

    def require_memory(self) -> None:
        """Raise ConfigError where a trial needs more memory than a rank may use here.  Nothing is played."""
        for config in self.configs.values():
            require_memory(training_needs(config, *self._size(config)))

    def run(self, config: Config) -> float:
        """Core seconds of a run until its first stop rule, the target aside.

        Raises what building its environment does.
        """
        workload, stop, every = self._workload(config), config.stop, config.evaluation.every
        machine = (self._constants or Constants()).machine
        prediction, generations = predict(machine, workload, self._ranks, config.overlap), float(stop.generations)
        if stop.steps is not None and workload.step:
            generations = min(generations, stop.steps * workload.step / (workload.seconds * workload.episodes))
        if stop.seconds is not None:
            generations = min(generations, stop.seconds / prediction.seconds)
        evaluated = generations / every * config.evaluation.episodes if every else 0.0
        return self._ranks * generations * prediction.seconds + evaluated * workload.seconds

    def trials(self) -> dict[str, float]:
        """Core seconds of each trial until its end, by label."""
        return {label: self.run(config) for label, config in self.configs.items()}

    def sweep(self) -> float:
        """Core seconds of all trials that have not ended.

        With halving, what all rungs take, from the first on.  Settings that a sampler has not proposed yet are taken to
        be like those at the ends of its ranges.
        """
        folder = self._folder
        if folder.halving:
            return self._sum_up_rungs(folder.halving.options)
        costs = self.trials()
        known = [costs[trial.label] for trial in folder.trials if folder.state(trial) not in ENDED]
        unknown = (folder.count_left() - len(known)) / len(costs)
        return sum(known) + unknown * sum(costs.values())

    def memory(self, ranks: int) -> NodeMemory:
        """What a node with so many ranks needs, where each of its groups trains the largest trial.

        Groups whose trials have the same seed and size of the noise table share it.  Nothing is played.
        """
        groups, configs = math.ceil(ranks / self._ranks), self.configs
        memories = [predict_memory(config, *self._size(config)) for config in configs.values()]
        noise = max(4 * config.noise.size for config in configs.values())
        table = max(memory.table for memory in memories)
        tables = len({(trial.seed, configs[trial.label].noise.size) for trial in self._trials})
        return NodeMemory(
            table=min(groups, tables) * min(table, noise) + groups * max(0, table - noise),
            rank=max(memory.rank for memory in memories),
            root=groups * max(memory.root for memory in memories),
        )

    def _sum_up_rungs(self, options: HalvingOptions) -> float:
        """Core seconds of all rungs of halving.  The best settings are taken to be like the mean of all."""
        folder = self._folder
        settings = {trial.label: trial for trial in folder.trials}
        left, budget, before, total = len(settings), options.first, 0.0, 0.0
        while left:  # where the budget is a whole run, further rungs add nothing
            until = sum(self.run(folder.config(trial, budget if left > 1 else 0)) for trial in settings.values())
            total += left / len(settings) * (until - before)
            before, left, budget = until, max(left // options.eta, int(left > 1)), budget * options.eta
        return total * len(folder.trials) / len(settings)

    def _size(self, config: Config) -> tuple[int, int]:
        key = _task_key(config)
        if key not in self._sizes:
            with contextlib.closing(Task(config)) as task:
                self._sizes[key] = measure_task(task)
        return self._sizes[key]

    def _workload(self, config: Config) -> Workload:
        key = _task_key(config)
        if key not in self._workloads:
            with contextlib.closing(Task(config)) as task:
                if self._constants:
                    found = fit_workload(config, self._folder.sweep.where, self._constants, task)
                else:
                    found = play_first_policy(task, 1, PATIENCE)[0]
            self._workloads[key] = found.at_longest() if self._is_longest else found
        return self._workloads[key].of_config(config)


def _task_key(config: Config) -> str:
    """The sections that decide on a Task, as text."""
    return f"{config.environment.model_dump_json()} {config.policy.model_dump_json()}"
