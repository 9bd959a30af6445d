"""What the trials of a sweep will take: core hours, the memory of a node, and how many ranks are worth a run."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpies.config.schema import Config
from mpies.launch.bench import make_workload, play_sample
from mpies.launch.cost import Cost, NodeMemory, predict_cost
from mpies.launch.simulate import Constants, Prediction, Workload, fit_workload, predict
from mpies.sweeps.folder import ENDED, SweepFolder
from mpies.sweeps.trials import HalvingOptions, Sweep, Trial
from mpies.training.task import Task
from mpies.training.update import make_solver

PATIENCE = 0.5  # seconds of play for each policy that is tried
TRIED = 8  # different environments and policies that are played at most; others are taken to be like the first one
EFFICIENT = 0.9  # least share of their time that the ranks of a run are to spend playing


@dataclass(frozen=True)
class TrialCost:
    """Core seconds that all generations and evaluations of a trial take; a target that is reached ends it earlier.

    usual: with episodes as they were measured.  longest: with all of them as long as they can be.
    """

    usual: float
    longest: float


class Forecast:
    """Predicts what trials take.

    sweep: whose configs are predicted.  constants: what `mpies bench` measured; None has a few episodes of the first
    policies played here, on a machine that is assumed otherwise.
    """

    def __init__(self, sweep: Sweep, constants: Constants | None = None) -> None:
        self._sweep, self._constants = sweep, constants
        self._workloads: dict[str, Workload] = {}  # environment and policy to what was played
        self._predictions: dict[str, Prediction] = {}
        self._costs: dict[str, Cost] = {}

    def cost(self, config: Config, ranks: int) -> TrialCost:
        """What a run of this config takes on so many ranks.  Raises what building its environment does."""
        workload = self._workload(config)
        usual, most = (self._core_seconds(config, one, ranks) for one in (workload, workload.at_longest()))
        return TrialCost(usual, max(usual, most))

    def efficiency(self, config: Config, ranks: int) -> float:
        """The share of their time that so many ranks spend playing."""
        return self._predict(config, self._workload(config), ranks).efficiency

    def _core_seconds(self, config: Config, workload: Workload, ranks: int) -> float:
        prediction, stop, every = self._predict(config, workload, ranks), config.stop, config.evaluation.every
        generations = float(stop.generations)
        if stop.steps is not None and workload.step:
            generations = min(generations, stop.steps * workload.step / (workload.seconds * workload.episodes))
        if stop.seconds is not None:
            generations = min(generations, stop.seconds / prediction.seconds)
        evaluated = generations / every * config.evaluation.episodes if every else 0.0
        return ranks * generations * prediction.seconds + evaluated * workload.seconds

    def _predict(self, config: Config, workload: Workload, ranks: int) -> Prediction:
        key = f"{workload.model_dump_json(exclude={'name'})} {config.overlap} {ranks}"
        if key not in self._predictions:
            known = self._constants or Constants()
            self._predictions[key] = predict(known.machine, workload, ranks, config.overlap)
        return self._predictions[key]

    def _workload(self, config: Config) -> Workload:
        key = f"{config.environment.model_dump_json()} {config.policy.model_dump_json()}"
        if key not in self._workloads:
            with contextlib.closing(Task(config)) as task:
                if self._constants:
                    self._workloads[key] = fit_workload(config, self._sweep.where, self._constants, task)
                else:
                    self._workloads[key] = self._play(config, task)
        return self._workloads[key].of_config(config)

    def _play(self, config: Config, task: Task) -> Workload:
        if len(self._workloads) >= TRIED:
            like = next(iter(self._workloads.values()))
            return like.model_copy(update={"parameters": task.dimension})
        rollouts = config.solver.members(task.dimension) * config.solver.episodes
        seconds, lengths = play_sample(config, task, rollouts, PATIENCE)
        steps = np.maximum(lengths, 1)  # an episode that fails has none
        return make_workload(config, task, self._sweep.where, max(seconds, 1e-9) / float(steps.sum()), steps)

    def memory(self, config: Config, ranks: int) -> NodeMemory:
        """What a node needs for a run of this config on so many ranks.  Nothing is played."""
        parts = [section.model_dump_json() for section in (config.environment, config.policy, config.noise)]
        key = f"{parts} {config.solver.kind} {config.solver.population} {ranks}"
        if key not in self._costs:
            self._costs[key] = predict_cost(config, ranks)
        cost, solver = self._costs[key], config.solver
        # Other keys of the solver decide on these two, and need no environment.
        noise = 4 * config.noise.size if solver.noise_rows(cost.parameters) else 0
        rows = 4 * cost.parameters * make_solver(config, cost.parameters).rows
        return replace(cost.memory, table=noise + rows, root=solver.memory(cost.parameters))


def predict_sweep(
    forecast: Forecast, folder: SweepFolder, configs: Mapping[str, Config], ranks_per_run: int
) -> TrialCost:
    """What all trials of a sweep take that have not ended, on groups of so many ranks.

    configs: by label, of folder.list_to_check().
    With halving, what all rungs take, from the first on.  Settings that a sampler has not proposed yet are taken to be
    like those at the ends of its ranges.
    """
    if folder.halving and folder.sweep.halving:
        return _predict_halving(forecast, folder, folder.sweep.halving, ranks_per_run)
    costs = {label: forecast.cost(config, ranks_per_run) for label, config in configs.items()}
    known = [costs[trial.label] for trial in folder.trials if folder.state(trial) not in ENDED]
    unknown = (folder.count_left() - len(known)) / len(costs)
    return _add([(known, 1.0), (list(costs.values()), unknown)])


def _predict_halving(forecast: Forecast, folder: SweepFolder, options: HalvingOptions, ranks_per_run: int) -> TrialCost:
    settings = {trial.label: trial for trial in folder.trials}
    seeds, left, budget = len(folder.trials) / len(settings), len(settings), options.first
    whole = _add([([forecast.cost(folder.config(trial, 0), ranks_per_run) for trial in settings.values()], 1.0)])
    before, total = TrialCost(0.0, 0.0), TrialCost(0.0, 0.0)
    while True:
        rung = [forecast.cost(folder.config(trial, budget), ranks_per_run) for trial in settings.values()]
        until = whole if left == 1 else _add([(rung, 1.0)])
        share = seeds * left / len(settings)
        total = _add([([total], 1.0), ([until], share), ([before], -share)])
        if left == 1 or until == whole:
            return total
        before, left, budget = until, max(1, left // options.eta), budget * options.eta


def _add(parts: Sequence[tuple[Sequence[TrialCost], float]]) -> TrialCost:
    """The sum of costs, each times the factor beside it."""
    usual = sum(factor * cost.usual for costs, factor in parts for cost in costs)
    return TrialCost(usual, sum(factor * cost.longest for costs, factor in parts for cost in costs))


def choose_ranks_per_run(forecast: Forecast, config: Config, trials: int, ranks: int, node_ranks: int) -> int:
    """How many ranks train a run together, where nobody says.

    As few as leave no rank without a trial: on one rank a run is as efficient as it can be.  With fewer trials than
    ranks they are as many as divide a node, or are whole nodes, on which the run is predicted to spend EFFICIENT of
    their time playing.

    config: of a trial.  trials: how many are to be trained.  ranks: of the job.  node_ranks: of a node.
    """
    wanted = -(-ranks // max(1, trials))
    if wanted == 1:
        return 1
    sizes = group_sizes(ranks, node_ranks)
    enough = next((size for size in sizes if size >= wanted), sizes[-1])
    candidates = [size for size in sizes if 1 < size <= enough]
    return next((size for size in reversed(candidates) if forecast.efficiency(config, size) >= EFFICIENT), 1)


def group_sizes(ranks: int, node_ranks: int) -> list[int]:
    """Numbers of ranks of which groups can be made that share no node with a part of another one, the least first."""
    parts = [size for size in range(1, min(node_ranks, ranks) + 1) if node_ranks % size == 0]
    nodes = [node_ranks * 2**power for power in range(1, 24) if node_ranks * 2**power <= ranks]
    return [*parts, *nodes]


@dataclass(frozen=True)
class SweepMemory:
    """Bytes of a node on which groups train trials.  total: with all processes.  shared: of it, in shared memory."""

    total: int
    shared: int


def measure_node(
    forecast: Forecast, configs: Mapping[str, Config], trials: Sequence[Trial], ranks: int, ranks_per_run: int
) -> SweepMemory:
    """The SweepMemory of a node with so many ranks, when its groups train those neighbours in the queue that need most.

    configs: of the trials, by label.  Groups whose trials have the same seed and size of the noise table share it.
    """
    groups = math.ceil(ranks / ranks_per_run)
    memories = {label: forecast.memory(config, ranks_per_run) for label, config in configs.items()}
    noise = {label: min(memories[label].table, 4 * config.noise.size) for label, config in configs.items()}
    rows = max(memory.table - noise[label] for label, memory in memories.items())
    shared = count_tables(trials, groups, noise) + groups * rows
    root, rank = max(memory.root for memory in memories.values()), max(memory.rank for memory in memories.values())
    return SweepMemory(shared + groups * root + ranks * rank, shared)


def count_tables(trials: Sequence[Trial], groups: int, sizes: Mapping[str, int]) -> int:
    """Bytes of the noise tables of a node at most, when its groups train neighbours in the queue.

    sizes: bytes of the table of each trial, by label.
    """
    wanted = [(trial.seed, sizes[trial.label]) for trial in trials]
    spans = ({*wanted[start : start + groups]} for start in range(max(1, len(wanted) - groups + 1)))
    return max(sum(size for _, size in span) for span in spans)
