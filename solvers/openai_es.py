"""OpenAI-ES (Salimans et al. 2017, arXiv 1703.03864)."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from mpies.core.arrays import Float64s, FloatArray
from mpies.solvers.base import Gaussian, Results, Solver
from mpies.solvers.moments import Weights, fold_pairs, no_square, norm
from mpies.solvers.optimizers import AdamOptions, AnyOptimizer, first_rate, make_optimizer
from mpies.solvers.options import SMALL_NETWORK, Count, Fraction, NonNegative, Pairs, Positive, Real, WholeNumber
from mpies.solvers.shaping import shape

FALL, LEAST = 0.7, 0.25  # of sigma and the learning rate on a plateau: a factor, and the least share of the first
RESTART = 30  # generations to wait before a run that has learned nothing begins anew
MEMORY = 0.9  # share of the average return that is kept in each generation


class OpenAIESOptions(Pairs):
    """OpenAI-ES: a gradient estimate from antithetic pairs, followed by Adam or SGD."""

    kind: Literal["openai_es"] = "openai_es"
    overlaps: ClassVar[bool] = True
    takes_low_rank: ClassVar[bool] = True
    computed = {"sigma": "first_sigma", "weight_decay": "decay"}
    population: Annotated[Count, Field(ge=2)] | None = Field(
        None,
        description="members per generation; must be even, since they are pairs; default 64 for up to 20,000 "
        "parameters, and 128 for more",
    )
    episodes_per_batch: WholeNumber = Field(
        0, description="draw whole populations until a generation has at least this many episodes"
    )
    timesteps_per_batch: WholeNumber = Field(
        0, description="draw whole populations until a generation has at least this many environment steps"
    )
    sigma: Positive | None = Field(
        None,
        description="standard deviation of the noise, in units of the parameters; default 0.1 for up to 20,000 "
        "parameters, and 0.02 (OpenAI's) for more",
    )
    sigma_decay: Annotated[Fraction, Field(gt=0)] = Field(1.0, description="factor on sigma after each generation")
    sigma_limit: NonNegative = Field(0.0, description="sigma never decays below this")
    learning_rate_decay: Annotated[Fraction, Field(gt=0)] = Field(
        1.0, description="factor on the learning rate after each generation"
    )
    learning_rate_limit: NonNegative = Field(0.0, description="the learning rate never decays below this")
    patience: WholeNumber = Field(
        0,
        description="generations without a new best of the mean return, which is averaged over about ten, after which "
        "sigma and the learning rate fall by 0.7, down to a quarter of the first; 0: never",
    )
    restart_below: Real | None = Field(
        None,
        description="training begins anew from the first parameters, with other noise, where the mean return, averaged "
        "over about ten generations, is below this and has had no new best for 30; null: never",
    )
    weight_decay: NonNegative | None = Field(
        None,
        description="weight decay: the gradient is reduced by this times the parameters (OpenAI's l2coeff); default 0 "
        "for up to 20,000 parameters, and 0.005 (OpenAI's) for more",
    )
    fitness: Literal["centred_rank", "sign", "centred_sign_rank", "z_score", "raw"] = Field(
        "centred_rank", description="fitness shaping (OpenAI's return_proc_mode)"
    )
    optimizer: AnyOptimizer = Field(
        AdamOptions.model_construct(), description="gradient rule: adam or sgd, with its own keys"
    )

    def is_complete(self, episodes: int, steps: int) -> bool:
        return episodes >= self.episodes_per_batch and steps >= self.timesteps_per_batch

    def default_population(self, dimension: int) -> int:
        return 64 if dimension <= SMALL_NETWORK else 128

    def first_sigma(self, dimension: int) -> float:
        """The standard deviation that d parameters begin with."""
        return self.sigma or (0.1 if dimension <= SMALL_NETWORK else 0.02)

    def decay(self, dimension: int) -> float:
        """The weight decay of d parameters."""
        small = 0.0 if dimension <= SMALL_NETWORK else 0.005
        return small if self.weight_decay is None else self.weight_decay


class OpenAIES(Solver[OpenAIESOptions, Gaussian]):
    """OpenAI-ES on the noise table (algorithm 2), with antithetic pairs and fitness shaping (section 2.1).

    >>> solver = OpenAIES(OpenAIESOptions(population=4), dimension=10)
    >>> solver.start(np.zeros(10, np.float32))
    >>> proposal = solver.ask()
    """

    Options = OpenAIESOptions
    gradient_norm = update_ratio = float("nan")

    @property
    def state_fields(self) -> tuple[str, ...]:
        options, fields = self.options, ["mean", "sigma", "learning_rate", "optimizer"]
        if options.patience or options.restart_below is not None:
            fields += ["average_return", "best_average", "waited"]
        return (*fields, *([] if options.restart_below is None else ["first_mean"]))

    def begin(self) -> None:
        if self.options.restart_below is not None:
            self.first_mean = self.mean.copy()
        self.optimizer = make_optimizer(self.options.optimizer, self.dimension)
        self.sigma = self.options.first_sigma(self.dimension)
        self.learning_rate = first_rate(self.options.optimizer, self.dimension)
        self.average_return, self.best_average, self.waited = float("nan"), float("-inf"), 0

    def propose(self) -> Gaussian:
        return Gaussian(self.mean, np.full(1, self.sigma, np.float32))

    def predict_mean(self) -> FloatArray:
        return self.mean + self.optimizer.expected_step(self.learning_rate)

    def compute_weights(self, results: Results, proposal: Gaussian) -> Weights:
        shaped = shape(self.options.fitness, results.returns, results.sign_returns)  # (n,)
        return fold_pairs(shaped[None], no_square(len(shaped)))  # (1, n / 2)

    def update(self, proposal: Gaussian, results: Results, moments: FloatArray) -> None:
        options = self.options
        # g = 1/n sum (r+ - r-) z.  OpenAI's code, too, leaves out the 1/sigma of algorithm 2.
        gradient = moments[0] / np.float32(len(results.returns))
        self.gradient_norm = norm(gradient)
        gradient -= np.float32(options.decay(self.dimension)) * self.mean
        step = self.optimizer.step(gradient, self.learning_rate)
        self.mean += step
        self.update_ratio = norm(step) / max(norm(self.mean), 1e-12)
        self.sigma = max(self.sigma * options.sigma_decay, min(options.sigma_limit, self.sigma))
        self.learning_rate = max(
            self.learning_rate * options.learning_rate_decay, min(options.learning_rate_limit, self.learning_rate)
        )
        if options.patience or options.restart_below is not None:
            self._look_for_plateau(results.returns)

    def _look_for_plateau(self, returns: Float64s) -> None:
        """Begin anew, or let sigma and the rate fall, where the average return has had no new best for long.

        The generations of the wait are counted anew after each fall.
        """
        options, played = self.options, returns[np.isfinite(returns)]
        if len(played):
            now, before = float(played.mean()), self.average_return
            self.average_return = now if np.isnan(before) else MEMORY * before + (1 - MEMORY) * now
        self.waited += 1
        if self.average_return > self.best_average:
            self.best_average, self.waited = self.average_return, 0
        is_low = options.restart_below is not None and self.best_average < options.restart_below
        wait = RESTART if is_low else options.patience
        if not wait or self.waited < wait:
            return
        if is_low:
            self.mean = self.first_mean
            self.begin()
            return
        self.waited = 0
        least_sigma = LEAST * options.first_sigma(self.dimension)
        least_rate = LEAST * first_rate(options.optimizer, self.dimension)
        self.sigma = max(FALL * self.sigma, min(least_sigma, self.sigma))
        self.learning_rate = max(FALL * self.learning_rate, min(least_rate, self.learning_rate))

    def report(self) -> dict[str, float]:
        return {
            "sigma": self.sigma,
            "parameter_norm": norm(self.mean),
            "gradient_norm": self.gradient_norm,
            "update_ratio": self.update_ratio,
        }
