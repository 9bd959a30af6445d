"""What limits scaling: the predicted length of a generation, its efficiency and its price on any number of ranks.

Symbols: P ranks on nodes of c, d parameters, n episodes a generation, T seconds an episode and CV its coefficient
of variation.  Collectives go along a tree of ceil(log2 P) levels.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import Field, ValidationError

from mpies import config as configs
from mpies.rollouts import ROLLOUT
from mpies.task import Task
from mpies.tickets import Schedule, told_times
from solvers.noise import LINE
from solvers.options import Count, NonNegative, Options, Positive, Text, WholeNumber

COUNTED = (4, 32)  # generations that a prediction is the mean of: at least, at most,
EPISODES = 20_000  # and in between as many as have so many episodes
FILLING = 3  # before and behind them where generations overlap, while the pipeline fills and drains


class Collective(Options):
    """A collective operation: seconds = levels of the tree * latency + bytes / bandwidth."""

    latency: NonNegative = Field(2e-6, description="seconds per level of the tree")
    bandwidth: Positive = Field(12.5e9, description="bytes per second")

    def seconds(self, size, ranks):
        return math.ceil(math.log2(ranks)) * self.latency + size / self.bandwidth if ranks > 1 else 0.0


class Machine(Options):
    """The constants of a machine; the defaults are those of a cluster with a fast network, assumed, not measured."""

    cores: Count = Field(36, description="ranks of a node")
    core_streaming: Positive = Field(5.7e9, description="bytes of noise per second that one rank alone sums")
    node_streaming: Positive = Field(100e9, description="likewise all ranks of a node together")
    broadcast: Collective = Field(Collective(), description="the proposal, from rank 0 to all")
    allgather: Collective = Field(Collective(), description="the results, from all to all")
    gather: Collective = Field(Collective(), description="the blocks of the update, from all to rank 0")
    generation: NonNegative = Field(0.0, description="seconds of a generation that hang on nothing")
    episode: NonNegative = Field(0.0, description="seconds per episode of a generation that every rank spends")
    parameter: NonNegative = Field(0.0, description="seconds per parameter that rank 0 spends alone")


class Work(Options):
    """The episodes of a task."""

    name: Text = Field("a task", description="where it comes from")
    environment: Text = Field("", description="its environment")
    parameters: Count = Field(description="d")
    rows: Count = Field(description="noise rows of a generation; half its members for antithetic pairs")
    episodes: Count = Field(description="n, episodes of a generation")
    seconds: Positive = Field(description="T, seconds of an episode on one rank that does nothing else")
    variation: NonNegative = Field(0.5, description="CV of the seconds of an episode")
    longest: Positive | None = Field(None, description="seconds of the longest episode that there can be")
    step: Positive | None = Field(None, description="seconds of a step")
    lanes: Count = Field(1, description="episodes side by side on a rank")
    smallest: Count = Field(1, description="least episodes that a rank begins at a time")
    largest: Count = Field(1, description="most episodes that a rank begins at a time")
    low_water: WholeNumber = Field(0, description="episodes under way at which a rank begins more")
    divisor: Count = Field(
        1, description="part of its fair share of what is left that a rank then takes: 1, a half ..."
    )

    def draw(self, seed, generation):
        """Seconds (n,) of a generation's episodes: log-normal, cut off at `longest`."""
        spread = math.sqrt(math.log1p(self.variation**2))
        random = np.random.default_rng([seed, generation])
        drawn = self.seconds * np.exp(random.normal(-(spread**2) / 2, spread, self.episodes))
        return np.minimum(drawn, self.longest or math.inf)


class Constants(Options):
    """What `mpies bench` measures and `mpies simulate` reads."""

    machine: Machine = Field(Machine(), description="the machine")
    task: Work | None = Field(None, description="the task, where bench was given a config")
    measured: dict[str, object] = Field({}, description="when, where and on how many ranks; for people")


def read_constants(path):
    """The Constants in a file that `mpies bench` wrote.  Raises ConfigError."""
    values = configs.read(path)
    try:
        return Constants.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"]))
        raise configs.ConfigError(
            f"{path}: {key}: {problem['msg']}; such a file is written by mpies bench --out FILE"
        ) from None


def parse_work(text):
    """The Work of "d,n,T,CV" or "d,n,T,CV,LONGEST".  Raises ConfigError."""
    try:
        numbers = [float(part) for part in text.split(",")]
        d, n, seconds, variation, *longest = numbers
        limit = longest[0] if longest else None
        return Work(
            name=text,
            parameters=d,
            rows=max(1, n // 2),
            episodes=n,
            seconds=seconds,
            variation=variation,
            longest=limit,
        )
    except (ValueError, ValidationError):
        raise configs.ConfigError(
            f"{text!r} is no task: give the path of a config, or PARAMETERS,EPISODES,SECONDS,VARIATION[,LONGEST] "
            "such as 166673,10000,1,0.5,2"
        ) from None


def work_of(task, overrides, constants):
    """The Work of a config, its episodes as they were measured, or of numbers such as 166673,10000,1,0.5.

    Raises ConfigError where the config's episodes were not measured.
    """
    if "," in task and not Path(task).exists():
        return parse_work(task)
    config = configs.load(task, overrides)
    if constants.task is None:
        raise configs.ConfigError(
            f"{task}: how long its episodes take is not known; measure with mpies bench {task} --out FILE, "
            "and give --constants FILE"
        )
    if constants.task.environment != config.environment.id:
        raise configs.ConfigError(
            f"{task}: its environment is {config.environment.id}, but the constants are of "
            f"{constants.task.environment}; measure with mpies bench {task} --out FILE"
        )
    dimension = Task(config).dimension
    solver = config.solver
    sizes = {
        "name": f"{Path(task).stem} ({config.environment.id})",
        "parameters": dimension,
        "rows": max(1, solver.noise_rows(dimension)),
        "episodes": solver.members(dimension) * solver.episodes,
    }
    return constants.task.model_copy(update=sizes)


@dataclass(frozen=True)
class Prediction:
    """Of one number of ranks.  seconds: of a generation.  efficiency: share of the ranks' time spent playing.

    phases: names to seconds of a generation; where generations overlap, they do not add up to `seconds`.
    """

    ranks: int
    seconds: float
    efficiency: float
    phases: dict


def update_phases(machine, work, ranks):
    """Seconds between a generation's last result and the next proposal on every rank, by phase.

    With L = ceil(log2 P), latency a and seconds per byte b: results travel in L a + 32 n b; the update reads n/2 rows
    of max(4 d / P, 64) bytes at min(s1, B/c), s1 being a core's and B a node's streaming rate; the blocks come
    together in L a + 4 d b and the proposal goes out in L a + 4 d b.
    """
    size = 4 * work.parameters
    busy = min(ranks, machine.cores)
    streaming = min(machine.core_streaming, machine.node_streaming / busy)
    return {
        "results": machine.allgather.seconds(ROLLOUT.itemsize * work.episodes, ranks),
        "weights": machine.episode * work.episodes,
        "moments": work.rows * max(size / ranks, 4 * LINE) / streaming,
        "blocks": machine.gather.seconds(size, ranks),
        "step": machine.generation + machine.parameter * work.parameters,
        "proposal": machine.broadcast.seconds(size, ranks),
    }


def predict(machine, work, ranks, overlap=0, static=False, seed=1):
    """The Prediction for a number of ranks; the tickets are played through with episodes drawn from `seed`.

    overlap: generations begun before the results of an older one are in.  static: no tickets but equal shares.
    """
    phases = update_phases(machine, work, ranks)
    full, rest = divmod(ranks, machine.cores)
    nodes = [machine.cores] * full + [rest] * (rest > 0)
    around = FILLING if overlap else 0
    count = min(max(COUNTED[0], EPISODES // work.episodes), COUNTED[1])
    drawn = [work.draw(seed, generation) for generation in range(around + count + around)]
    # Writing a member reads its row and the mean and writes as much again.
    member = 3 * 4 * work.parameters / machine.core_streaming
    schedule = Schedule(work.lanes, work.smallest, work.largest, work.low_water, work.divisor, static)
    told = told_times(
        [(times + member).tolist() for times in drawn],
        nodes,
        schedule,
        sum(phases.values()),
        overlap,
        phases["weights"] + phases["moments"],
    )
    counted = slice(around, around + count)
    seconds = (told[counted][-1] - (told[around - 1] if around else 0.0)) / count
    played = sum(float(times.sum()) for times in drawn[counted]) / count
    efficiency = min(1.0, played / (ranks * seconds))  # what is counted cuts through episodes where they overlap
    tail = max(0.0, seconds - sum(phases.values()) - played / ranks)
    return Prediction(ranks, seconds, efficiency, {"playing": played / ranks, "waiting": tail, **phases})


def parse_ranks(text):
    """Numbers of ranks of "1,2,36" or of "1..10000", the latter in powers of two.  Raises ConfigError."""
    try:
        if ".." in text:
            first, last = (int(part) for part in text.split(".."))
            powers = [2**power for power in range(last.bit_length()) if first < 2**power < last]
            counts = sorted({first, *powers, last})
        else:
            counts = [int(part) for part in text.split(",")]
        if counts[0] < 1 or min(counts) < 1:
            raise ValueError
        return counts
    except (ValueError, IndexError):
        raise configs.ConfigError(f"--ranks must be like 1,2,36 or 1..10000, but is {text!r}") from None


def describe(work, pairs, generations, price):
    """The predictions as a table.  pairs: (without, with overlap) for each number of ranks; price: of a core hour."""
    longest = f", at most {work.longest:g} s" if work.longest else ""
    lines = [
        f"{work.name}: {work.parameters:,} parameters, {work.episodes:,} episodes of {work.seconds:.3g} s a generation "
        f"(CV {work.variation:.2f}{longest})",
        "",
        f"{'':>7}  {'every generation by itself':^38}  {'one generation of overlap':^38}",
        f"{'ranks':>7}" + 2 * f"  {'s/generation':>12} {'efficiency':>10} {_unit(generations, price):>14}",
    ]
    for pair in pairs:
        parts = [
            f"  {found.seconds:>12.4g} {found.efficiency:>10.3f} {_cost(found, generations, price):>14,.4g}"
            for found in pair
        ]
        lines.append(f"{pair[0].ranks:>7,}" + "".join(parts))
    last = pairs[-1][0]
    found = sorted(last.phases.items(), key=lambda phase: -phase[1])
    lines.append("")
    lines.append(f"A generation on {last.ranks:,} ranks: " + ", ".join(f"{name} {_time(s)}" for name, s in found if s))
    return "\n".join(lines)


def _unit(generations, price):
    return f"{'cost' if price else 'core hours'}/{generations}"


def _cost(found, generations, price):
    return found.ranks * found.seconds * generations / 3600 * (price or 1)


def _time(seconds):
    for unit, size in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def draw_plot(path, work, pairs):
    """Efficiency against ranks as a picture.  Raises ConfigError without matplotlib or with an unknown kind of file."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise configs.ConfigError("--plot needs a package that is not installed; pip install matplotlib") from None
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    ranks = [pair[0].ranks for pair in pairs]
    for place, label in enumerate(("every generation by itself", "one generation of overlap")):
        axes.plot(ranks, [pair[place].efficiency for pair in pairs], marker="o", label=label)
    axes.set(xscale="log", ylim=(0, 1.05), xlabel="ranks", ylabel="share of time spent playing", title=work.name)
    axes.grid(alpha=0.3)
    axes.legend()
    try:
        figure.savefig(Path(path), dpi=120)
    except (OSError, ValueError) as error:
        raise configs.ConfigError(f"--plot {path}: cannot be written ({error})") from None
