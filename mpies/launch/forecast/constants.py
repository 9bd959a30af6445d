"""The constants of a machine and the episodes of a task: what `mpies bench` measures and predictions start from.

Symbols: d parameters, n episodes a generation, T seconds an episode and CV its coefficient of variation.
"""

import contextlib
import math
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError

from mpies.config.loading import as_yaml, load_config, read_yaml
from mpies.config.mistakes import explain
from mpies.config.schema import Config
from mpies.core.errors import ConfigError
from mpies.core.options import Count, Flag, NonNegative, Options, Positive, Text, WholeNumber
from mpies.envs.base import VectorEnv
from mpies.rollouts.batch import evaluation_batch
from mpies.rollouts.queue import play_alone
from mpies.runs.files import check_writable, write_atomically, writing
from mpies.training.task import Task

MOST_EPISODES = 1_000_000  # of a generation that is predicted; the time that a prediction needs grows with them


class Collective(Options):
    """A collective operation: seconds = levels of the tree * latency + bytes / bandwidth."""

    latency: NonNegative = Field(2e-6, description="seconds per level of the tree")
    bandwidth: Positive = Field(12.5e9, description="bytes per second")

    def seconds(self, size: float, ranks: int) -> float:
        """Seconds of an operation on `size` bytes among `ranks` ranks."""
        return math.ceil(math.log2(ranks)) * self.latency + size / self.bandwidth if ranks > 1 else 0.0


class Machine(Options):
    """The constants of a machine; the defaults are those of a cluster with a fast network, assumed, not measured."""

    cores: Count = Field(36, description="ranks of a node")
    speeds: tuple[Positive, ...] = Field((1.0,), min_length=1, description="of the nodes, 1 being usual, in turn")
    core_streaming: Positive = Field(5.7e9, description="bytes of noise per second that one rank alone sums")
    node_streaming: Positive = Field(100e9, description="likewise all ranks of a node together")
    network: Collective = Field(Collective(), description="what all ranks send or get together")
    generation: NonNegative = Field(0.0, description="seconds of a generation that depend on nothing else")
    episode: NonNegative = Field(0.0, description="seconds per episode of a generation that every rank spends")
    parameter: NonNegative = Field(0.0, description="seconds per parameter that rank 0 spends alone")


class Workload(Options):
    """The episodes of a task."""

    name: Text = Field("a task", description="name of the task, for display")
    environment: Text = Field("", description="its environment")
    parameters: Count = Field(description="d")
    rows: Count = Field(description="noise rows of a generation; half its members for antithetic pairs")
    episodes: Count = Field(description="n, episodes of a generation")
    seconds: Positive = Field(description="T, seconds of an episode on one rank that does nothing else")
    variation: NonNegative = Field(0.5, description="CV of the seconds of an episode")
    longest: Positive | None = Field(None, description="seconds of the longest episode that there can be")
    step: Positive | None = Field(None, description="seconds of a step")
    players: Count | None = Field(None, description="ranks of a node that play at most; None for all")
    overlaps: Flag = Field(True, description="whether generations may overlap; not every solver allows it")
    smallest: Count = Field(1, description="fewest episodes that a rank takes at a time")
    largest: Count = Field(1, description="most episodes that a rank takes at a time")
    low_water: WholeNumber = Field(
        0, description="a rank takes more episodes once no more than this number is in flight"
    )
    divisor: Count = Field(
        1, description="a rank takes its fair share of the remaining episodes divided by this at a time"
    )

    def draw(self, seed: int, generation: int) -> npt.NDArray[np.float64]:
        """Seconds (n,) of the episodes of a generation: log-normal, cut off at `longest`."""
        spread = math.sqrt(math.log1p(self.variation**2))
        random = np.random.default_rng([seed, generation])
        drawn = self.seconds * np.exp(random.normal(-(spread**2) / 2, spread, self.episodes))
        return np.minimum(drawn, self.longest or math.inf)

    def count_to_take(self, left: int, ranks: int) -> int:
        """How many episodes a rank takes when `ranks` ranks share the `left` ones."""
        return min(max(-(-left // (self.divisor * ranks)), self.smallest), self.largest)

    def at_longest(self) -> "Workload":
        """The same with all episodes as long as they can be."""
        return self.model_copy(update={"seconds": self.longest or self.seconds, "variation": 0.0})

    def of_config(self, config: Config) -> "Workload":
        """The same episodes in generations of a config's size."""
        length = self.seconds / self.step if self.step else 1.0
        return self.model_copy(update=size_of_generation(config, self.parameters, length))


def size_of_generation(config: Config, dimension: int, length: float) -> dict[str, Any]:
    """Keys of a Workload that a config decides: a generation has all populations that its solver asks for.

    dimension: d.  length: mean steps of an episode.
    """
    solver, environment = config.solver, config.environment
    episodes = solver.count_episodes(dimension, length)
    populations = episodes // (solver.members(dimension) * solver.episodes)
    return {
        "rows": max(1, solver.noise_rows(dimension) * populations),
        "episodes": episodes,
        "players": environment.instances if environment.instances_per == "node" else None,
        "overlaps": solver.overlaps,
    }


def longest_episode(config: Config) -> int | None:
    """Steps of the longest episode that there can be; None where it is not known."""
    section = config.environment
    if section.function is not None:
        return 1
    from gymnasium import registry

    spec = registry.get(section.id)
    return section.max_steps or (spec.max_episode_steps if spec else None)


class Constants(Options):
    """What `mpies bench` measures and `mpies simulate` reads."""

    machine: Machine = Field(Machine(), description="the machine")
    task: Workload | None = Field(None, description="the task, where bench was given a config")
    measured: dict[str, Any] = Field({}, description="when, where and on how many ranks, for display")

    def as_text(self) -> str:
        """The text of a file that `read_constants` reads."""
        return as_yaml(self.model_dump(mode="json", exclude_none=True))


def read_constants(path: str | Path) -> Constants:
    """The Constants in a file that `mpies bench` wrote.  Raises ConfigError."""
    values = read_yaml(path)
    try:
        return Constants.model_validate(values)
    except ValidationError as error:
        problem = explain(error, str(path), (), Constants)
        raise ConfigError(f"{problem}; such a file is written by mpies bench --out FILE") from None


def parse_workload(text: str) -> Workload:
    """The Workload of "d,n,T,CV" or "d,n,T,CV,LONGEST".  Raises ConfigError."""
    try:
        numbers = [float(part) for part in text.split(",")]
        names = ["parameters", "episodes", "seconds", "variation", "longest"][: max(4, len(numbers))]
        given = dict(zip(names, numbers, strict=True))
        workload = Workload.model_validate({"name": text, "rows": max(1, given["episodes"] // 2), **given})
    except (ValueError, ValidationError):
        raise ConfigError(
            f"{text!r} is not a task: give the path of a config, or PARAMETERS,EPISODES,SECONDS,VARIATION[,LONGEST] "
            "such as 166673,10000,1,0.5,2"
        ) from None
    if workload.episodes > MOST_EPISODES:
        raise ConfigError(f"{text!r}: a generation may have at most {MOST_EPISODES:,} episodes here; give fewer")
    return workload


def find_workload(task: str, overrides: Sequence[str], constants: Constants) -> Workload:
    """The Workload of a config, with its episodes as `mpies bench` measured them, or of numbers.

    task: the path of a config, or a text such as "166673,10000,1,0.5".
    Raises ConfigError where the episodes of the config's environment were not measured, and for overrides of numbers.
    """
    if "," in task and not Path(task).exists():
        if overrides:
            raise ConfigError(f"{overrides[0]!r} is for a config, but the task is the numbers {task}; leave it out")
        return parse_workload(task)
    config = load_config(task, overrides, trains=False)
    with contextlib.closing(Task(config)) as built:
        return fit_workload(config, task, constants, built)


def fit_workload(config: Config, path: str, constants: Constants, task: Task) -> Workload:
    """The Workload of a config, with its episodes as `mpies bench` measured them.

    path: of the config, for messages.  task: the config's.
    Raises ConfigError where the episodes of the config's environment were not measured.
    """
    cure = f"measure it with mpies bench {shlex.quote(path)} --out FILE"
    if constants.task is None:
        raise ConfigError(f"{path}: the duration of its episodes is unknown; {cure}, and give --constants FILE")
    if constants.task.environment != config.environment.id:
        raise ConfigError(
            f"{path}: its environment is {config.environment.id}, but the constants are for "
            f"{constants.task.environment}; {cure}"
        )
    name = f"{Path(path).stem} ({config.environment.id})"
    known, limit = constants.task, longest_episode(config)
    longest = limit * known.step if limit and known.step else known.longest  # with this config's time limit
    update = {"name": name, "parameters": task.dimension, "longest": longest}
    return known.model_copy(update=update).of_config(config)


def make_workload(config: Config, task: Task, name: str, step: float, lengths: npt.NDArray[np.int64]) -> Workload:
    """The Workload of a config.

    name: of the config, for people.  step: seconds of a step.  lengths: (k,) steps of the episodes that were played.
    """
    env, schedule = task.env, {}
    if isinstance(env, VectorEnv):
        schedule = {key: getattr(env, key) for key in ("smallest", "largest", "low_water", "divisor")}
    limit, dimension = longest_episode(config), task.dimension
    return Workload(
        name=f"{name} ({config.environment.id})",
        environment=config.environment.id,
        parameters=dimension,
        seconds=step * float(lengths.mean()),
        variation=float(lengths.std() / lengths.mean()),
        longest=limit and limit * step,
        step=step,
        **size_of_generation(config, dimension, float(lengths.mean())),
        **schedule,
    )


def play_first_policy(task: Task, players: int, patience: float) -> tuple[Workload, int, float]:
    """Play episodes of the first policy on this rank for a moment.

    players: ranks that share a generation; no more than the part of one is played.
    patience: seconds that are about to be spent at most.
    Returns the Workload, and the number and the seconds of the last episodes that were played side by side.
    """
    first, solver = task.first_policy(), task.config.solver
    normalization = None
    if task.observation_size:
        size = task.observation_size
        normalization = first.get("normalization", np.stack([np.zeros(size), np.ones(size)]).astype(np.float32))
    part = math.ceil(solver.members(task.dimension) * solver.episodes / players)
    count = 1
    while True:  # more at a time are faster: as many as are played at once, unless that takes long
        batch = evaluation_batch(first["parameters"], task.evaluation_seeds(0, 0, count), normalization)
        began = time.perf_counter()
        records, _ = play_alone(task.player, batch)
        took = time.perf_counter() - began
        if count == part or took * min(4, part / count) > patience:
            steps = np.maximum(records["steps"], 1)  # an episode that fails has none
            return make_workload(task.config, task, "", max(took, 1e-9) / float(steps.sum()), steps), count, took
        count = min(4 * count, part)


def write_constants(constants: Constants | None, out: str) -> None:
    """Write a file that `read_constants` reads; None only tries whether it could.  Raises ConfigError where not."""
    with writing(f"--out {out}"):
        if constants is None:
            check_writable(out)
        else:
            write_atomically(out, constants.as_text().encode())
