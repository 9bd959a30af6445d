"""The state of a run on rank 0: all that the next generation depends on, how far it has come, and the best so far."""

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mpies.config.schema import Config
from mpies.core.arrays import Array, Float32s, Float64s
from mpies.core.errors import RunError, SolverProblem, UserError
from mpies.core.text import describe_error
from mpies.rollouts.batch import NEVER
from mpies.runs.formats import hdf5
from mpies.runs.formats.hdf5 import Arrays
from mpies.runs.formats.metrics import COLUMNS, Cell, Row
from mpies.runs.formats.policy_file import select
from mpies.runs.snapshot import Evaluation, Snapshot
from mpies.solvers.base import AnySolver, Results
from mpies.solvers.moments import norm
from mpies.training.evaluation.generation import GenerationSpec, PlayedGeneration
from mpies.training.evaluation.overlap import EarlySpecs


@contextlib.contextmanager
def fitting(run: object) -> Iterator[None]:
    """Raise RunError where a state or a record, whose checksum is right, is of another config.  run: its name."""
    try:
        yield
    except UserError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise RunError(
            f"{run}: its checkpoint or its ledger is of another config ({describe_error(error)}); give another run"
        ) from error


class Normalizer:
    """What the policy subtracts from observations of `size` numbers and divides them by: mean and standard deviation.

    Each sampled episode sums its own observations in step order, in float64; rank 0 adds the episodes in member order.
    So the statistics are the same on any number of ranks.  They are (0, 1) until two observations have been seen.
    Variances below 1e-4 count as 1e-4, so that a number that never changes is not magnified.
    """

    def __init__(self, size: int) -> None:
        self.count: Float64s = np.zeros(1)
        self.total: Float64s = np.zeros(size)
        self.squares: Float64s = np.zeros(size)

    def add(self, counts: Float64s, totals: Float64s, squares: Float64s) -> None:
        """Add episodes in the order given.  counts: (k,), totals and squares: (k, size)."""
        for count, total, square in zip(counts, totals, squares, strict=True):
            self.count += count
            self.total += total
            self.squares += square

    def mean_and_deviation(self) -> Float32s:
        """Mean and standard deviation (2, size) float32."""
        if self.count[0] < 2:
            return np.stack([np.zeros_like(self.total), np.ones_like(self.total)]).astype(np.float32)
        mean = self.total / self.count
        variance = np.maximum(self.squares / self.count - mean * mean, 1e-4)
        return np.stack([mean, np.sqrt(variance)]).astype(np.float32)

    def state(self) -> dict[str, Float64s]:
        """Names to copies of the arrays, for `restore`."""
        return {"count": self.count.copy(), "total": self.total.copy(), "squares": self.squares.copy()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.count[:], self.total[:], self.squares[:] = state["count"], state["total"], state["squares"]


@dataclass
class Clock:
    """How far a run has come, all its resumes together; training only.  seconds: of wall time, without pauses."""

    generation: int = 0
    episodes: int = 0
    steps: int = 0
    seconds: float = 0.0


class Learner:
    """The solver with the observation statistics, the clock, and the limit of training episodes.

    observation_size: o, 0 where observations are not normalised.
    constants: arrays that a policy has besides its parameters.
    limit: steps of a training episode, None for no limit.
    bonus: what reward_shift auto subtracts from the reward of each step; 0 before the first generation.
    early: the specs of early members, where generations overlap.
    best: the highest mean of an evaluation so far.
    solved: the mean of the newest evaluation if it was confirmed, else -inf.
    solved_interval: half the width of its 95 % confidence interval; NaN where that is not known.
    speed: environment steps per second of the newest generation that was played.
    idle: (ranks,) share of its time in which each rank played nothing.
    """

    def __init__(
        self, config: Config, solver: AnySolver, observation_size: int, constants: Mapping[str, Array] | None = None
    ) -> None:
        self.config, self.solver, self.constants = config, solver, constants or {}
        self.normalizer = Normalizer(observation_size)
        self.clock = Clock()
        adaptive = config.environment.adaptive
        self.limit = adaptive.start if adaptive else None
        self.bonus = 0.0
        self.early = EarlySpecs()
        self.best = self.solved = -math.inf
        self.solved_interval = math.nan
        self._mean_before: Float32s | None = None  # (d,) what the newest step started from

    def start(self, policy: Mapping[str, Any]) -> None:
        """Begin a run.  policy: names to arrays: `parameters` (d,), and `normalizer/*` where statistics are known."""
        self.solver.start(policy["parameters"])
        if "normalizer/count" in policy:
            self.normalizer.restore(select(policy, "normalizer/"))

    @np.errstate(all="ignore")  # a scale may overflow; the returns of the members show it
    def ask(self) -> GenerationSpec:
        """The spec of members that are sampled around the newest mean."""
        normalization = self.normalizer.mean_and_deviation() if self.normalizer.total.size else None
        return GenerationSpec(self.solver.ask(), normalization, self.limit)

    @np.errstate(all="ignore")  # a scale may overflow; the returns of the members show it
    def ask_early(self) -> GenerationSpec:
        """The spec of the early members of the generation after this one: around where the mean is expected to be."""
        return self.early.fix(self.ask(), self.solver.predict_mean())

    def tell(
        self, spec: GenerationSpec, results: Results, population: PlayedGeneration, moments: Float32s, seconds: float
    ) -> None:
        """Take the step of a generation.

        results: what the solver learns from.  moments: (orders, d), of all members.  seconds: that it took.
        """
        self._mean_before = self.solver.mean.copy()
        self.solver.tell(spec.proposal, results, moments)
        early = self.early.advance()
        if population.record is not None:  # the ledger has the statistics and the clock after this step
            self._load_progress(population.record)
        else:
            self._count(population, early, seconds)

    def _count(self, population: PlayedGeneration, early: GenerationSpec | None, seconds: float) -> None:
        """Add a generation that was played to the statistics and the clock.  early: the spec of its early members."""
        results, episodes = population.results, self.config.solver.episodes
        for sums in population.observations:
            self.normalizer.add(sums["count"], sums["total"], sums["squares"])
        steps = int(results.steps.sum())
        self.clock.generation += 1
        self.clock.episodes += len(results.returns) * episodes
        self.clock.steps += steps
        self.clock.seconds += seconds
        self.speed = steps / seconds
        self.idle = 1 - np.minimum(population.busy / seconds, 1)
        adaptive = self.config.environment.adaptive
        if adaptive and self.limit is not None:
            limits = np.full(len(results.steps), self.limit)
            if early and early.limit is not None:
                limits[: self.config.solver.early_members(self.config.overlap, self.solver.dimension)] = early.limit
            at_limit = results.steps // episodes >= limits  # (n,) members that reached theirs in all their episodes
            if at_limit.mean() >= adaptive.threshold:
                times = 3 if not adaptive.threshold and at_limit.all() else 1
                growth = math.prod([adaptive.ratio] * times)
                self.limit = int(min(max(self.limit + 1, self.limit * growth), NEVER))

    def update_best(self, evaluation: Evaluation) -> bool:
        """Remember the best evaluation.  Returns whether it is this one."""
        is_best = not evaluation.failures and evaluation.mean > self.best
        if is_best:
            self.best = evaluation.mean
        return is_best

    def state(self) -> dict[str, Any]:
        """Names to arrays that no later step changes: all that the next generation depends on; the digest covers it."""
        return (
            {f"solver/{name}": value for name, value in self.solver.state().items()}
            | {f"normalizer/{name}": value for name, value in self.normalizer.state().items()}
            | self._episode_state()
            | self.early.state()
        )

    def _episode_state(self) -> dict[str, Any]:
        """What the config lets training find out about episodes: the bonus of a step and the limit."""
        bonus = {"bonus": self.bonus} if self.config.environment.reward_shift == "auto" else {}
        return bonus | ({} if self.limit is None else {"limit": self.limit})

    def progress(self) -> dict[str, Any]:
        """Names to values: all but the solver and the early spec."""
        return (
            {f"normalizer/{name}": value for name, value in self.normalizer.state().items()}
            | {f"clock/{name}": value for name, value in asdict(self.clock).items()}
            | self._episode_state()
            | {"best": self.best, "solved": self.solved}
        )

    def restore(self, arrays: Arrays) -> None:
        """Continue from a checkpoint, which has what `state` and `progress` returned, bit for bit."""
        self.solver.restore(select(arrays, "solver/"))
        self._load_progress(arrays)
        self.early.restore(arrays, self.solver.Proposal)

    def _load_progress(self, arrays: Mapping[str, Any]) -> None:
        self.normalizer.restore(select(arrays, "normalizer/"))
        self.clock = Clock(**{name: value.item() for name, value in select(arrays, "clock/").items()})
        self.best, self.solved = float(arrays["best"]), float(arrays["solved"])
        self.limit = int(arrays["limit"]) if "limit" in arrays else None
        self.bonus = float(arrays["bonus"]) if self.config.environment.reward_shift == "auto" else 0.0

    def digest(self) -> str:
        """SHA-256 of the state."""
        return hdf5.digest(self.state())

    def policy(self) -> dict[str, Any]:
        """Names to arrays of a portable policy: the mean, and how to normalise observations."""
        return (
            {"parameters": self.solver.mean, "normalization": self.normalizer.mean_and_deviation()}
            | {f"normalizer/{name}": value for name, value in self.normalizer.state().items()}
            | {f"constants/{name}": value for name, value in self.constants.items()}
        )

    @np.errstate(all="ignore")  # parameters and returns may be huge
    def row(self, population: PlayedGeneration, evaluation: Evaluation | None, job: Row) -> Row:
        """The newest generation's row of metrics.csv, without the digest.

        job: the columns about ranks, nodes, starts and pauses.
        Raises SolverProblem where the solver reports a column that every run has.
        """
        results = population.results
        report = {**self.solver.report()}
        if "update_ratio" not in report and self._mean_before is not None:
            mean = self.solver.mean
            report["update_ratio"] = norm(mean - self._mean_before) / max(norm(mean), 1e-12)
        if taken := sorted(report.keys() & set(COLUMNS)):
            raise SolverProblem(
                f"solver.kind {self.config.solver.kind}: report must name columns of its own, "
                f"but every run has {', '.join(taken)}; choose another name"
            )
        returns = results.returns[~np.isnan(results.returns)]
        return {
            "generation": self.clock.generation,
            "seconds": self.clock.seconds,
            "episodes": self.clock.episodes,
            "steps": self.clock.steps,
            **{
                f"return_{of}": getattr(returns, of)() if len(returns) else None for of in ("mean", "std", "min", "max")
            },
            "length_mean": results.steps.mean() / self.config.solver.episodes,
            "eval_mean": evaluation.mean if evaluation else None,
            "eval_std": evaluation.std if evaluation else None,
            "eval_episodes": len(evaluation.returns) if evaluation else None,
            "eval_length": evaluation.length if evaluation else None,
            "eval_rank": evaluation.rank_among(returns) if evaluation else None,
            "failures": len(results.returns) - len(returns),
            "steps_per_second": self.speed,
            "idle_mean": self.idle.mean(),
            "idle_max": self.idle.max(),
            "observations": self.normalizer.count[0],
            **job,
            **report,
        }

    def snapshot(
        self,
        population: PlayedGeneration | None = None,
        evaluation: Evaluation | None = None,
        is_best: bool = False,
        **job: Cell,
    ) -> Snapshot:
        """The state after a generation, copied, so that it can be written while training goes on.

        population: of the newest generation; None where nothing is to be recorded but the state.
        job: the columns of its row about ranks, nodes, starts and pauses.
        """
        state = {name: np.asarray(value) for name, value in self.state().items()}
        progress = {name: np.asarray(value) for name, value in self.progress().items()}
        return Snapshot(
            generation=self.clock.generation,
            state=state,
            progress=progress,
            policy=self.policy() | {"parameters": state["solver/mean"]},
            results=vars(population.results) if population else {},
            row=self.row(population, evaluation, job) if population else {},
            evaluation=evaluation,
            is_best=is_best,
            idle=self.idle if population else None,
        )
