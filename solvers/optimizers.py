"""Gradient-ascent rules: from a gradient to a step of the mean.

All state is float32 and all vector operations are elementwise, so a step has the same bits wherever it is computed.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
from pydantic import Field

from mpies.core.arrays import FloatArray
from mpies.solvers.moments import norm
from mpies.solvers.options import SMALL_NETWORK, Fraction, Options, Positive


class AdamOptions(Options):
    """Adam (Kingma & Ba 2015)."""

    kind: Literal["adam"] = "adam"
    learning_rate: Positive | None = Field(
        None,
        description="step size, in units of the parameters; default 0.03 for up to 20,000 parameters, and 0.01 "
        "(OpenAI's) for more",
    )
    beta1: Annotated[Fraction, Field(lt=1)] = Field(0.9, description="decay of the mean of gradients, per generation")
    beta2: Annotated[Fraction, Field(lt=1)] = Field(0.999, description="decay of the mean of squared gradients")
    epsilon: Positive = Field(1e-8, description="added to the root of the mean squared gradient")

    def computed_defaults(self, dimension: int) -> dict[str, float]:
        return {} if self.learning_rate else {"optimizer.learning_rate": first_rate(self, dimension)}


class SGDOptions(Options):
    """Stochastic gradient ascent with momentum."""

    kind: Literal["sgd"] = "sgd"
    learning_rate: Positive = Field(0.01, description="step size: parameters per unit of gradient")
    momentum: Annotated[Fraction, Field(lt=1)] = Field(0.9, description="decay of the velocity, per generation")


class ClipUpOptions(Options):
    """ClipUp (Toklu et al. 2020, arXiv 2008.02387): steps of normalised gradients under a speed limit."""

    kind: Literal["clipup"] = "clipup"
    learning_rate: Positive = Field(
        0.1125, description="length that a gradient adds to the velocity; three quarters of max_speed works well"
    )
    momentum: Annotated[Fraction, Field(lt=1)] = Field(0.9, description="decay of the velocity, per generation")
    max_speed: Positive = Field(0.15, description="longest step of a generation, in units of the parameters")


OptimizerOptions = AdamOptions | SGDOptions | ClipUpOptions
RateOptions = TypeVar("RateOptions", SGDOptions, ClipUpOptions)
AnyOptimizer = Annotated[OptimizerOptions, Field(discriminator="kind")]  # the type of an `optimizer` key


def first_rate(options: OptimizerOptions, dimension: int) -> float:
    """The learning rate that d parameters begin with."""
    return options.learning_rate or (0.03 if dimension <= SMALL_NETWORK else 0.01)


class Optimizer(ABC):
    """A gradient-ascent rule.  Its state is the attributes that state_fields names: arrays and whole numbers."""

    state_fields: ClassVar[tuple[str, ...]] = ("velocity",)

    @abstractmethod
    def step(self, gradient: FloatArray, learning_rate: float) -> FloatArray:
        """The step (d,) to add to the mean.  gradient: (d,) of what is maximised."""

    @abstractmethod
    def expected_step(self, learning_rate: float) -> FloatArray:
        """The step (d,) that the momentum alone would make now; the state does not change."""

    def state(self) -> dict[str, Any]:
        """Names to arrays: all that later steps depend on."""
        return {name: np.asarray(getattr(self, name)) for name in self.state_fields}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned, bit for bit."""
        for name in self.state_fields:
            restored = np.array(state[name])
            setattr(self, name, restored if restored.ndim else restored.item())


class Adam(Optimizer):
    """Adam (Kingma & Ba 2015, arXiv 1412.6980, algorithm 1), ascending."""

    state_fields = ("first", "second", "updates")

    def __init__(self, options: AdamOptions, dimension: int) -> None:
        self.options = options
        self.first = np.zeros(dimension, np.float32)  # m
        self.second = np.zeros(dimension, np.float32)  # v
        self.updates = 0  # t

    def step(self, gradient: FloatArray, learning_rate: float) -> FloatArray:
        beta1, beta2 = self.options.beta1, self.options.beta2
        self.updates += 1
        self.first *= np.float32(beta1)  # m <- beta1 m + (1 - beta1) g
        self.first += np.float32(1 - beta1) * gradient
        self.second *= np.float32(beta2)  # v <- beta2 v + (1 - beta2) g^2
        step = gradient * gradient
        step *= np.float32(1 - beta2)
        self.second += step
        np.sqrt(self.second, out=step)  # alpha / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + epsilon)
        step /= np.float32(np.sqrt(1 - beta2**self.updates))
        step += np.float32(self.options.epsilon)
        np.divide(self.first, step, out=step)
        step *= np.float32(learning_rate / (1 - beta1**self.updates))
        return step

    def expected_step(self, learning_rate: float) -> FloatArray:
        if not self.updates:
            return np.zeros_like(self.first)
        correction1, correction2 = (1 - b**self.updates for b in (self.options.beta1, self.options.beta2))
        root = np.sqrt(self.second) / np.float32(np.sqrt(correction2)) + np.float32(self.options.epsilon)
        return self.first / root * np.float32(learning_rate / correction1)


class Momentum(Optimizer, Generic[RateOptions]):
    """A rule whose state is a velocity."""

    def __init__(self, options: RateOptions, dimension: int) -> None:
        self.options: RateOptions = options
        self.velocity = np.zeros(dimension, np.float32)  # v


class SGD(Momentum[SGDOptions]):
    """v <- momentum v + (1 - momentum) g; step = learning_rate v."""

    def step(self, gradient: FloatArray, learning_rate: float) -> FloatArray:
        momentum = self.options.momentum
        self.velocity *= np.float32(momentum)
        self.velocity += np.float32(1 - momentum) * gradient
        return np.float32(learning_rate) * self.velocity

    def expected_step(self, learning_rate: float) -> FloatArray:
        return np.float32(learning_rate) * self.velocity


class ClipUp(Momentum[ClipUpOptions]):
    """v <- momentum v + learning_rate g / |g|, shortened to max_speed if longer; step = v.

    Toklu et al. 2020, arXiv 2008.02387, algorithm 1.
    """

    def step(self, gradient: FloatArray, learning_rate: float) -> FloatArray:
        options, length = self.options, norm(gradient)
        self.velocity *= np.float32(options.momentum)
        if length > 0:
            self.velocity += np.float32(learning_rate / length) * gradient
        speed = norm(self.velocity)
        if speed > options.max_speed:
            self.velocity *= np.float32(options.max_speed / speed)
        return self.velocity.copy()

    def expected_step(self, learning_rate: float) -> FloatArray:
        return self.velocity.copy()


def make_optimizer(options: OptimizerOptions, dimension: int) -> Optimizer:
    """The rule that `options` names, in its first state."""
    if isinstance(options, AdamOptions):
        return Adam(options, dimension)
    if isinstance(options, SGDOptions):
        return SGD(options, dimension)
    return ClipUp(options, dimension)
