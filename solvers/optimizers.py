"""Gradient-ascent rules: from a gradient to a step of the mean.

All state is float32 and every operation elementwise, so a step has the same bits wherever it
is computed.
"""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from solvers.moments import norm
from solvers.options import Fraction, Options, Positive


class AdamOptions(Options):
    """Adam (Kingma & Ba 2015)."""

    kind: Literal["adam"] = "adam"
    learning_rate: Positive = Field(0.01, description="step size, in units of the parameters")
    beta1: Annotated[Fraction, Field(lt=1)] = Field(0.9, description="decay of the mean of gradients, per generation")
    beta2: Annotated[Fraction, Field(lt=1)] = Field(0.999, description="decay of the mean of squared gradients")
    epsilon: Positive = Field(1e-8, description="added to the root of the mean squared gradient")


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


class Adam:
    """Adam (Kingma & Ba 2015, algorithm 1), ascending.

    options: AdamOptions.  dimension: d.
    """

    def __init__(self, options, dimension):
        self.options = options
        self.first = np.zeros(dimension, np.float32)
        self.second = np.zeros(dimension, np.float32)
        self.updates = 0

    def step(self, gradient, learning_rate):
        """The step (d,) float32 to add to the mean for `gradient` (d,) float32 of what is maximised."""
        beta1, beta2 = self.options.beta1, self.options.beta2
        self.updates += 1
        self.first *= np.float32(beta1)
        self.first += np.float32(1 - beta1) * gradient
        self.second *= np.float32(beta2)
        step = gradient * gradient
        step *= np.float32(1 - beta2)
        self.second += step
        np.sqrt(self.second, out=step)
        step /= np.float32(np.sqrt(1 - beta2**self.updates))
        step += np.float32(self.options.epsilon)
        np.divide(self.first, step, out=step)
        step *= np.float32(learning_rate / (1 - beta1**self.updates))
        return step

    def state(self):
        return {"first": self.first, "second": self.second, "updates": np.int64(self.updates)}

    def restore(self, state):
        self.first[:], self.second[:], self.updates = state["first"], state["second"], int(state["updates"])


class SGD:
    """v <- momentum v + (1 - momentum) gradient; step = learning_rate v.

    options: SGDOptions.  dimension: d.
    """

    def __init__(self, options, dimension):
        self.options = options
        self.velocity = np.zeros(dimension, np.float32)

    def step(self, gradient, learning_rate):
        """The step (d,) float32 to add to the mean for `gradient` (d,) float32 of what is maximised."""
        momentum = self.options.momentum
        self.velocity *= np.float32(momentum)
        self.velocity += np.float32(1 - momentum) * gradient
        return np.float32(learning_rate) * self.velocity

    def state(self):
        return {"velocity": self.velocity}

    def restore(self, state):
        self.velocity[:] = state["velocity"]


class ClipUp:
    """v <- clip(momentum v + learning_rate gradient / |gradient|, max_speed); step = v (algorithm 1).

    options: ClipUpOptions.  dimension: d.
    """

    def __init__(self, options, dimension):
        self.options = options
        self.velocity = np.zeros(dimension, np.float32)

    def step(self, gradient, learning_rate):
        """The step (d,) float32 to add to the mean for `gradient` (d,) float32 of what is maximised."""
        options, length = self.options, norm(gradient)
        self.velocity *= np.float32(options.momentum)
        if length > 0:
            self.velocity += np.float32(learning_rate / length) * gradient
        speed = norm(self.velocity)
        if speed > options.max_speed:
            self.velocity *= np.float32(options.max_speed / speed)
        return self.velocity.copy()

    def state(self):
        return {"velocity": self.velocity}

    def restore(self, state):
        self.velocity[:] = state["velocity"]


AnyOptimizer = Annotated[AdamOptions | SGDOptions | ClipUpOptions, Field(discriminator="kind")]
_RULES = {"adam": Adam, "sgd": SGD, "clipup": ClipUp}


def make_optimizer(options, dimension):
    """The rule that `options` asks for, at rest."""
    return _RULES[options.kind](options, dimension)
