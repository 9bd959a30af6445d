"""A model of scaling: the predicted length of a generation, its efficiency and its price on any number of ranks.

Symbols: P ranks on nodes of c, d parameters, n episodes a generation, T seconds an episode and CV its coefficient
of variation.  Collectives go along a tree of ceil(log2 P) levels.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

from mpies.core.errors import ConfigError
from mpies.core.text import align
from mpies.launch.forecast.constants import Machine, Workload
from mpies.launch.forecast.schedule import completion_times
from mpies.rollouts.batch import rollout_record
from mpies.solvers.sampling.noise import LINE

MOST_RANKS = 1_000_000  # that a prediction takes; the time that it needs grows with them
FEWEST, MOST = 4, 32  # bounds on the number of generations that a prediction averages
EPISODES = 20_000  # within these bounds, as many generations as have this many episodes
SHARES, NEARLY = (0.25, 0.5, 1.0), 0.98  # of overlap that are tried; a share is enough with this part of the best
WARM_UP = 3  # where generations overlap or nodes differ, more of them before and after those that are averaged


@dataclass(frozen=True)
class Prediction:
    """The prediction for a number of ranks.

    seconds: of a generation.  efficiency: the share of the ranks' time that they spend playing, where a rank
    of a slow node counts as that part of a rank.
    phases: the name of each part of a generation to its seconds; where generations overlap, the parts add up to more
    than `seconds`.
    overlap: as the config's key.
    """

    ranks: int
    seconds: float
    efficiency: float
    phases: dict[str, float]
    overlap: float = 0.0


def update_phases(machine: Machine, workload: Workload, ranks: int) -> dict[str, float]:
    """Seconds between the last result of a generation and the next proposal on every rank, by phase.

    With L = ceil(log2 P), latency a and seconds per byte b: results travel in L a + 32 n b; the update reads n/2 rows
    of max(4 d / P, 64) bytes at min(s1, B/c), s1 being the streaming rate of a core and B that of a node; the blocks
    are gathered in L a + 4 d b and the proposal is broadcast in L a + 4 d b.
    """
    size = 4 * workload.parameters
    busy = min(ranks, machine.cores)
    streaming = min(machine.core_streaming, machine.node_streaming / busy)
    return {
        "results": machine.network.seconds(rollout_record().itemsize * workload.episodes, ranks),
        "weights": machine.episode * workload.episodes,
        "moments": workload.rows * max(size / ranks, 4 * LINE) / streaming,
        "blocks": machine.network.seconds(size, ranks),
        "step": machine.generation + machine.parameter * workload.parameters,
        "proposal": machine.network.seconds(size, ranks),
    }


@functools.cache
def predict(machine: Machine, workload: Workload, ranks: int, overlap: float = 0.0, seed: int = 1) -> Prediction:
    """The Prediction for a number of ranks, from a simulation with episodes drawn from `seed`.

    overlap: as the config's key.
    """
    phases = update_phases(machine, workload, ranks)
    full, rest = divmod(ranks, machine.cores)
    players = min(machine.cores, workload.players or machine.cores)
    nodes = [players] * full + [min(players, rest)] * (rest > 0)
    around = WARM_UP if overlap or max(machine.speeds) > min(machine.speeds) else 0
    count = min(max(FEWEST, EPISODES // workload.episodes), MOST)
    drawn = [workload.draw(seed, generation) for generation in range(around + count + around)]
    # Writing a member reads its noise row and the mean, and writes as many bytes as each of them has.
    member = 3 * 4 * workload.parameters / machine.core_streaming
    ends = completion_times(
        [(times + member).tolist() for times in drawn],
        nodes,
        workload,
        sum(phases.values()),
        overlap,
        phases["weights"] + phases["moments"],
        machine.speeds,
    )
    averaged = slice(around, around + count)
    seconds = (ends[averaged][-1] - (ends[around - 1] if around else 0.0)) / count
    played = sum(float(times.sum()) for times in drawn[averaged]) / count
    # Where generations overlap, episodes at either end of what is averaged can make it more than 1.
    idle = ranks - sum(nodes)  # those that have no instance of the environment
    playing = played / (idle + sum(count * speed for count, speed in zip(nodes, cycle(machine.speeds), strict=False)))
    efficiency = min(1.0, playing / seconds)
    waiting = max(0.0, seconds - sum(phases.values()) - playing)
    return Prediction(ranks, seconds, efficiency, {"playing": playing, "waiting": waiting, **phases}, overlap)


def predict_pairs(machine: Machine, workload: Workload, ranks: Sequence[int]) -> list[tuple[Prediction, Prediction]]:
    """For each number of ranks, the predictions without overlap and with the recommended share of it.

    A smaller share costs fewer samples.  The smallest is recommended that is nearly as efficient as any; it is 0 where
    generations must not overlap.
    """
    pairs = []
    for count in ranks:
        by_share = [predict(machine, workload, count, share) for share in (SHARES if workload.overlaps else (0.0,))]
        enough = NEARLY * max(prediction.efficiency for prediction in by_share)
        recommended = next(prediction for prediction in by_share if prediction.efficiency >= enough)
        pairs.append((predict(machine, workload, count), recommended))
    return pairs


def parse_ranks(text: str) -> list[int]:
    """The numbers of ranks of "1,2,36", or of "1..10000" the ends and the powers of two between them.

    Raises ConfigError.
    """
    try:
        if ".." in text:
            first, last = (int(part) for part in text.split(".."))
            powers = [2**power for power in range(last.bit_length()) if first < 2**power < last]
            counts = sorted({first, *powers, last}) if first <= last else []
        else:
            counts = [int(part) for part in text.split(",")]
        if counts[0] < 1 or min(counts) < 1:
            raise ValueError
    except (ValueError, IndexError):
        raise ConfigError(f"--ranks must be like 1,2,36 or 1..10000, but is {text!r}") from None
    if max(counts) > MOST_RANKS:
        raise ConfigError(f"--ranks must be at most {MOST_RANKS:,}, but is {text!r}")
    return counts


def describe_predictions(
    workload: Workload, pairs: Sequence[tuple[Prediction, Prediction]], generations: int, price: float | None
) -> str:
    """The predictions as a table.

    pairs: as of `predict_pairs`.
    price: of a core hour; None shows core hours.
    """
    longest = f", at most {workload.longest:g} s" if workload.longest else ""
    numbers = "s/generation", "efficiency", f"{'core hours' if price is None else 'cost'}/{generations}"

    def format_cells(one: Prediction) -> tuple[str, str, str]:
        total = one.ranks * one.seconds * generations / 3600 * (1 if price is None else price)
        return f"{one.seconds:.4g}", f"{one.efficiency:.3f}", f"{total:,.4g}"

    rows = [("ranks", *numbers, "with overlap", *numbers)]
    for alone, best in pairs:
        rows.append((f"{alone.ranks:,}", *format_cells(alone), f"{best.overlap:g}", *format_cells(best)))
    last = pairs[-1][0]
    phases = sorted(last.phases.items(), key=lambda phase: -phase[1])
    return (
        f"{workload.name}: {workload.parameters:,} parameters, {workload.episodes:,} episodes of "
        f"{workload.seconds:.3g} s a generation (CV {workload.variation:.2f}{longest})\n\n{align(rows, left=0)}\n\n"
        f"A generation on {last.ranks:,} ranks: " + ", ".join(f"{name} {describe_time(s)}" for name, s in phases if s)
    )


def describe_time(seconds: float) -> str:
    """Seconds for people, such as 1.5 ms or 12 min."""
    if seconds >= 600:
        return f"{seconds / 60:.0f} min" if seconds < 5 * 3600 else f"{seconds / 3600:,.1f} h"
    units = ("s", 1.0), ("ms", 1e-3), ("us", 1e-6)
    unit, size = next((one for one in units if seconds >= one[1]), ("ns", 1e-9))
    return f"{seconds / size:.3g} {unit}"
