"""What rank 0 alone has: all that the next generation depends on, the clock, and the best so far."""

import math
from dataclasses import dataclass, fields

import numpy as np

from mpies.normalizer import Normalizer
from solvers.base import Results

AHEAD = "ahead/"  # what the names of an offer begin with in a checkpoint
CONFIDENCE = 1.96  # standard errors on either side of a mean that make its 95 % confidence interval


@dataclass
class Clock:
    """How far a run has come, all its resumes together; training only.  seconds: of wall time."""

    generation: int = 0
    episodes: int = 0
    steps: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Evaluation:
    """Returns (episodes,) float64 and lengths (episodes,) int64 in steps of held-out episodes of the mean.

    confirmed: whether they reach the target, and as many fresh ones did so too.
    """

    returns: np.ndarray
    lengths: np.ndarray
    confirmed: bool = False

    @property
    def mean(self):
        return float(np.mean(self.returns))

    @property
    def length(self):
        return float(np.mean(self.lengths))

    @property
    def deviation(self):
        """Sample standard deviation of the returns."""
        return float(np.std(self.returns, ddof=1)) if len(self.returns) > 1 else 0.0

    @property
    def interval(self):
        """Half the width of the 95 % confidence interval of the mean."""
        return CONFIDENCE * self.deviation / math.sqrt(len(self.returns))

    def rank_among(self, returns):
        """The share of a generation's `returns` below an episode of the mean: 0.5 where noise changes nothing."""
        return float(np.searchsorted(np.sort(returns), self.returns).mean() / max(len(returns), 1))


class Learner:
    """The solver in its course, with the observation statistics."""

    def __init__(self, solver, task):
        self.solver, self.task = solver, task
        self.normalizer = Normalizer(task.observation_size)
        self.clock = Clock()
        adaptive = task.config.environment.adaptive
        self.limit = adaptive and adaptive.start  # steps of a training episode; None without a limit that adapts
        self.ahead = []  # where generations overlap: what was sent of the coming one before the newest results were in
        self.best = -math.inf  # the highest evaluation so far
        self.solved = -math.inf  # the newest evaluation, where it was confirmed
        self.results = None  # Results of a generation that is made but not on disk yet
        self.idle = np.zeros(1)  # (ranks,) share of the newest generation's time in which a rank played nothing

    def begin(self, checkpoint):
        """Go on from a checkpoint, (arrays, attributes), or where there is none from the first parameters."""
        if checkpoint:
            return self.restore(checkpoint[0])
        first = self.task.first_policy()
        self.solver.start(first["parameters"])
        if "normalizer/count" in first:
            self.normalizer.restore(part(first, "normalizer/"))
        if self.task.config.overlap:
            self.ahead = self.offer()

    def offer(self):
        """As make_offer, of a generation sampled around the newest parameters."""
        vectors = make_offer(self.solver, self.normalizer, self.limit)
        if self.task.config.overlap:  # the solver goes on with its own while this one is played
            self._offered = vectors = [vector.copy() for vector in vectors]
        return vectors

    def update(self, proposal, results, sums, observed, seconds):
        """Take the step of a generation.  observed: records of observation sums, in member order."""
        self._step(proposal, results, sums)
        for batch in observed:
            self.normalizer.add(batch["count"], batch["total"], batch["squares"])
        steps = int(results.steps.sum())
        self.clock.generation += 1
        self.clock.episodes += len(results.returns) * self.task.config.solver.episodes
        self.clock.steps += steps
        self.clock.seconds += seconds
        self.speed = steps / seconds
        self.results = results
        if self.limit is not None:
            self._adapt(results)

    def _adapt(self, results):
        """Raise the limit of training episodes where enough members reached it in all their episodes."""
        adaptive = self.task.config.environment.adaptive
        reached = results.steps >= self.limit * self.task.config.solver.episodes
        if reached.mean() >= adaptive.threshold:
            self.limit = max(self.limit + 1, int(self.limit * adaptive.ratio))

    def repeat(self, proposal, sums, record):
        """Take the step of a generation again, from its ledger record."""
        self._step(proposal, results_of(record), sums)
        self._recall(record)

    def _step(self, proposal, results, sums):
        self.solver.tell(proposal, results, sums)
        if self.ahead:
            self.ahead = self._offered

    def ledger_record(self):
        """Names to arrays: what the newest generation found, and what else came of it but the step."""
        found = {entry.name: getattr(self.results, entry.name) for entry in fields(Results)}
        return {"generation": self.clock.generation} | found | self._besides()

    def judge(self, evaluation):
        """Take note of an Evaluation of the mean; returns whether it is the best so far."""
        self.solved = evaluation.mean if evaluation.confirmed else -math.inf
        better = evaluation.mean > self.best
        self.best = max(self.best, evaluation.mean)
        return better

    def stop_reason(self, stop):
        """The name of the stop rule that holds, or ''."""
        clock = self.clock
        if stop.target is not None and self.solved >= stop.target:
            return "solved"
        if clock.generation >= stop.generations:
            return "generations"
        if stop.steps is not None and clock.steps >= stop.steps:
            return "steps"
        if stop.seconds is not None and clock.seconds >= stop.seconds:
            return "seconds"
        return ""

    def record(self, evaluation, ranks):
        """The row of metrics.csv of the newest generation but its digest: names of columns to values."""
        results = self.results
        returns = results.returns[~np.isnan(results.returns)]
        some = len(returns) > 0
        return {
            "generation": self.clock.generation,
            "seconds": self.clock.seconds,
            "episodes": self.clock.episodes,
            "steps": self.clock.steps,
            "return_mean": returns.mean() if some else None,
            "return_std": returns.std() if some else None,
            "return_min": returns.min() if some else None,
            "return_max": returns.max() if some else None,
            "length_mean": results.steps.mean() / self.task.config.solver.episodes,
            "eval_mean": evaluation and evaluation.mean,
            "eval_std": evaluation and evaluation.deviation,
            "eval_episodes": evaluation and len(evaluation.returns),
            "eval_length": evaluation and evaluation.length,
            "eval_rank": evaluation and evaluation.rank_among(returns),
            "failures": len(results.returns) - len(returns),
            "ranks": ranks,
            "steps_per_second": self.speed,
            "idle_mean": self.idle.mean(),
            "idle_max": self.idle.max(),
            "observations": self.normalizer.count[0],
            **self.solver.report(),
        }

    def state(self):
        """Names to arrays: everything the next generation depends on; what the digest covers."""
        named = {f"solver/{name}": value for name, value in self.solver.state().items()}
        named |= {f"normalizer/{name}": value for name, value in self.normalizer.state().items()}
        return named | self._limit() | named_offer(self.ahead)

    def _limit(self):
        return {} if self.limit is None else {"limit": self.limit}

    def _besides(self):
        """Names to arrays: all but the solver's state."""
        normalizer = {f"normalizer/{name}": value for name, value in self.normalizer.state().items()}
        clock = {f"clock/{entry.name}": getattr(self.clock, entry.name) for entry in fields(Clock)}
        return normalizer | clock | self._limit() | {"best": self.best, "solved": self.solved}

    def _recall(self, arrays):
        """Take over what `_besides` returned."""
        self.normalizer.restore(part(arrays, "normalizer/"))
        self.clock = Clock(**{name: value.item() for name, value in part(arrays, "clock/").items()})
        self.best, self.solved = float(arrays["best"]), float(arrays["solved"])
        self.limit = int(arrays["limit"]) if "limit" in arrays else None

    def everything(self):
        """Names to arrays of a checkpoint: the state, the clock and the best."""
        return self.state() | self._besides()

    def restore(self, arrays):
        """Go on from what `everything` returned."""
        self.solver.restore(part(arrays, "solver/"))
        self._recall(arrays)
        self.ahead = offer_in(arrays)

    def policy(self):
        """Names to arrays of a portable policy: the mean, and how to normalise observations."""
        found = {"parameters": self.solver.mean, "normalization": self.normalizer.mean_and_deviation()}
        found |= {f"normalizer/{name}": value for name, value in self.normalizer.state().items()}
        constants = self.task.policy.constants if self.task.policy else {}
        return found | {f"constants/{name}": value for name, value in constants.items()}


def make_offer(solver, normalizer, limit):
    """What ranks must know to play a generation: the Proposal's vectors, the observation mean and deviation (2 o,),
    and (1,) the limit of training episodes in steps, 0 for none."""
    return [*solver.ask().vectors(), normalizer.mean_and_deviation().ravel(), np.array([limit or 0], np.int64)]


def as_normalization(vector):
    """Mean and deviation (2, o) from the vector (2 o,) in an offer; None where there is none."""
    return vector.reshape(2, -1) if len(vector) else None


def named_offer(vectors):
    """An offer as it stands in a checkpoint."""
    return {f"{AHEAD}{place}": vector for place, vector in enumerate(vectors)}


def offer_in(arrays):
    """The offer in a checkpoint's arrays; [] without."""
    found = part(arrays, AHEAD)
    return [found[str(place)] for place in range(len(found))]


def results_of(record):
    """The Results in a ledger record."""
    return Results(**{entry.name: record[entry.name] for entry in fields(Results)})


def part(arrays, prefix):
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
