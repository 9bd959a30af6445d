"""What a run or a sweep will cost, before it starts: memory, traffic, seconds and core hours."""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mpies.comm.limits import PARAMETERS, SOLVER, require_memory
from mpies.config.loading import load_config
from mpies.config.schema import Config, NoiseSection
from mpies.envs.base import VectorEnv
from mpies.launch.constants import (
    Constants,
    Workload,
    find_workload,
    fit_workload,
    play_first_policy,
    read_constants,
)
from mpies.launch.simulate import Prediction, predict
from mpies.rollouts.batch import observation_record, rollout_record
from mpies.solvers.base import Results
from mpies.solvers.check import check_if_custom
from mpies.solvers.custom_solver import CustomSolver
from mpies.sweeps.folder import ENDED, SweepFolder
from mpies.sweeps.trials import HalvingOptions
from mpies.training.task import Task
from mpies.training.update import make_solver

PATIENCE = 0.5  # seconds of play for each policy that is tried
TRIED = 8  # different environments and policies that are played at most; others are taken to be like the first one
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
    """

    proposal: int
    moments: int
    payload: int
    behaviour: int


class TaskSize(NamedTuple):
    """What the memory of a run needs to know of its environment and policy.

    parameters: d.  slots: episodes side by side on a rank.
    """

    parameters: int
    slots: int


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
    """The Cost of a run on `ranks` ranks.  Builds the environment to learn its sizes, and tries a custom solver out."""
    with contextlib.closing(Task(config)) as task:
        size = size_of_task(config, task)
        check_if_custom(make_solver(config, task.dimension, task.directions), task.behaviour_size)
        solver, dimension, observations = config.solver, task.dimension, task.observation_size
        rollouts = solver.members(dimension) * solver.episodes
        sampled = rollouts * config.policy.statistics_fraction if observations else 0
        rows, traffic = solver.noise_rows(dimension), predict_traffic(config, task)
        return Cost(
            memory=predict_memory(config, size),
            parameters=dimension,
            normals=task.directions.length if rows else 0,
            noise=4 * task.directions.length * rows,
            broadcast=traffic.proposal + 8 * observations,
            gathered=rollouts * rollout_record(traffic.payload, traffic.behaviour).itemsize
            + round(sampled * observation_record(observations).itemsize),
            blocks=traffic.moments * 4 * dimension * (ranks - 1) // ranks,
        )


def size_of_task(config: Config, task: Task) -> TaskSize:
    """The TaskSize of a config's task.  Raises ConfigError where the parameters and the solver cannot fit anywhere."""
    needs = task.training_needs()
    require_memory({name: needs[name] for name in (PARAMETERS, SOLVER)})  # they are used to predict the traffic
    slots = task.env.slots if isinstance(task.env, VectorEnv) else 1
    return TaskSize(task.dimension, slots)


def predict_memory(config: Config, size: TaskSize) -> NodeMemory:
    """What a node needs for a run."""
    dimension, solver = size.parameters, config.solver
    noise = 4 * config.noise.size if solver.noise_rows(dimension) else 0
    return NodeMemory(
        table=noise + 4 * dimension * make_solver(config, dimension).rows,
        rank=PROCESS + 4 * dimension * (size.slots + 3),
        root=solver.memory(dimension),
    )


def predict_traffic(config: Config, task: Task) -> Traffic:
    """The Traffic of the config's solver, from a generation with made-up results."""
    dimension, options = task.dimension, config.solver
    solver = make_solver(config, dimension)
    behaviour = task.behaviour_size if solver.wants_behaviour else 0
    if not options.noise_rows(dimension):  # whole candidates; the solver's state may be too large to make it here
        return Traffic(4 * dimension * (1 + solver.rows), 0, solver.payload_size, behaviour)
    solver.start(np.zeros(dimension, np.float32))
    proposal, members = solver.ask(), options.members(dimension)
    if not isinstance(solver, CustomSolver):  # which gets the results of whole populations
        members = min(members, MADE_UP + options.plays_mean)
    payload, behaviours = np.ones((members, solver.payload_size)), np.zeros((members, behaviour))
    with np.errstate(all="ignore"):  # a huge learning rate, for instance
        weights = solver.compute_weights(Results.of(np.arange(members), payload, behaviours), proposal)
    sent = sum(vector.nbytes for vector in proposal.vectors())
    if proposal.rows is not None:
        sent += proposal.rows.nbytes // options.rows_last
    moments = len(weights.linear) + len(weights.square)
    return Traffic(sent, moments, solver.payload_size, behaviour)


def predict_longest(
    path: str | Path, overrides: Sequence[str], constants: str | Path, nodes: int, ranks_per_node: int
) -> float:
    """Predicted seconds of all generations, with episodes as long as they can be.

    constants: the file that `mpies bench` wrote.  Raises ConfigError where it is not of this config's environment.
    """
    known, config = read_constants(constants), load_config(path, overrides)
    workload = find_workload(str(path), overrides, known).at_longest()
    machine = known.machine.model_copy(update={"cores": ranks_per_node})
    return config.stop.generations * predict(machine, workload, nodes * ranks_per_node).seconds


class CoreSeconds(NamedTuple):
    """Core seconds that generations and evaluations of runs take; a target that is reached ends a run earlier.

    usual: with episodes as they were measured.  longest: with all of them as long as they can be.
    """

    usual: float
    longest: float


class SweepMemory(NamedTuple):
    """Bytes of a node on which groups train trials.  total: with all processes.  shared: of it, in shared memory."""

    total: int
    shared: int


class SweepForecast:
    """Predicts what the trials of a sweep take, on groups of ranks_per_run ranks.

    constants: what `mpies bench` measured; None has a few episodes of the first policies played here, on a machine that
    is assumed otherwise.  configs: of all trials, by label, those at the ends of a sampler's ranges among them.
    """

    def __init__(self, folder: SweepFolder, ranks_per_run: int, constants: Constants | None = None) -> None:
        self._folder, self._sweep, self._ranks, self._constants = folder, folder.sweep, ranks_per_run, constants
        self._trials = folder.list_to_check()
        self.configs = {trial.label: self._sweep.config(trial) for trial in reversed(self._trials)}
        self._workloads: dict[str, Workload] = {}  # environment and policy to what was played
        self._predictions: dict[str, Prediction] = {}

    def run(self, config: Config) -> CoreSeconds:
        """What a run of this config takes.  Raises what building its environment does."""
        workload = self._workload(config)
        usual, most = (self._sum_up(config, one) for one in (workload, workload.at_longest()))
        return CoreSeconds(usual, max(usual, most))

    def trials(self) -> dict[str, CoreSeconds]:
        """What each trial takes until its end, by label."""
        return {label: self.run(config) for label, config in self.configs.items()}

    def sweep(self) -> CoreSeconds:
        """What all trials take that have not ended.

        With halving, what all rungs take, from the first on.  Settings that a sampler has not proposed yet are taken to
        be like those at the ends of its ranges.
        """
        folder = self._folder
        if folder.halving:
            return CoreSeconds(*self._sum_up_rungs(folder.halving.options).tolist())
        costs = self.trials()
        known = [costs[trial.label] for trial in folder.trials if folder.state(trial) not in ENDED]
        unknown = (folder.count_left() - len(known)) / len(costs)
        return CoreSeconds(*(_add(known) + unknown * _add(list(costs.values()))).tolist())

    def memory(self, ranks: int) -> SweepMemory:
        """What a node with so many ranks needs, when its groups train those neighbours in the queue that need most.

        Groups whose trials have the same seed and size of the noise table share it.  Nothing is played.
        """
        groups = math.ceil(ranks / self._ranks)
        sizes: dict[str, TaskSize] = {}
        memories = {label: predict_memory(config, _size_of(config, sizes)) for label, config in self.configs.items()}
        noise = {label: min(memories[label].table, 4 * config.noise.size) for label, config in self.configs.items()}
        rows = max(memory.table - noise[label] for label, memory in memories.items())
        wanted = [(trial.seed, noise[trial.label]) for trial in self._trials]
        spans = ({*wanted[start : start + groups]} for start in range(max(1, len(wanted) - groups + 1)))
        shared = max(sum(size for _, size in span) for span in spans) + groups * rows
        root, rank = max(memory.root for memory in memories.values()), max(memory.rank for memory in memories.values())
        return SweepMemory(shared + groups * root + ranks * rank, shared)

    def _sum_up(self, config: Config, workload: Workload) -> float:
        """Core seconds of a run until its first stop rule but the target."""
        prediction, stop, every = self._predict(config, workload), config.stop, config.evaluation.every
        generations = float(stop.generations)
        if stop.steps is not None and workload.step:
            generations = min(generations, stop.steps * workload.step / (workload.seconds * workload.episodes))
        if stop.seconds is not None:
            generations = min(generations, stop.seconds / prediction.seconds)
        evaluated = generations / every * config.evaluation.episodes if every else 0.0
        return self._ranks * generations * prediction.seconds + evaluated * workload.seconds

    def _sum_up_rungs(self, options: HalvingOptions) -> npt.NDArray[np.float64]:
        """(2,) CoreSeconds of all rungs of halving."""
        folder = self._folder
        settings = {trial.label: trial for trial in folder.trials}
        seeds, left, budget = len(folder.trials) / len(settings), len(settings), options.first

        def all_until(budget: int) -> npt.NDArray[np.float64]:
            return _add([self.run(folder.config(trial, budget)) for trial in settings.values()])

        whole, before, total = all_until(0), np.zeros(2), np.zeros(2)
        while True:
            until = whole if left == 1 else all_until(budget)
            total += seeds * left / len(settings) * (until - before)
            if left == 1 or np.array_equal(until, whole):
                return total
            before, left, budget = until, max(1, left // options.eta), budget * options.eta

    def _predict(self, config: Config, workload: Workload) -> Prediction:
        key = f"{workload.model_dump_json(exclude={'name'})} {config.overlap}"
        if key not in self._predictions:
            known = self._constants or Constants()
            self._predictions[key] = predict(known.machine, workload, self._ranks, config.overlap)
        return self._predictions[key]

    def _workload(self, config: Config) -> Workload:
        key = _task_key(config)
        if key not in self._workloads:
            with contextlib.closing(Task(config)) as task:
                self._workloads[key] = self._find_workload(config, task)
        return self._workloads[key].of_config(config)

    def _find_workload(self, config: Config, task: Task) -> Workload:
        if self._constants:
            return fit_workload(config, self._sweep.where, self._constants, task)
        if len(self._workloads) >= TRIED:
            like = next(iter(self._workloads.values()))
            return like.model_copy(update={"parameters": task.dimension})
        return play_first_policy(config, task, self._sweep.where, 1, PATIENCE)[0]


def _size_of(config: Config, known: dict[str, TaskSize]) -> TaskSize:
    """The TaskSize of a config, whose environment is built unless it is known already."""
    key = _task_key(config)
    if key not in known:
        with contextlib.closing(Task(config)) as task:
            known[key] = size_of_task(config, task)
    return known[key]


def _task_key(config: Config) -> str:
    """The sections that decide on a Task, as text."""
    return f"{config.environment.model_dump_json()} {config.policy.model_dump_json()}"


def _add(costs: Sequence[CoreSeconds]) -> npt.NDArray[np.float64]:
    """(2,) the sum of what runs take."""
    return np.array(costs).reshape(-1, 2).sum(axis=0)
