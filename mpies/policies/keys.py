"""The keys that every kind of policy has."""

from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from mpies.core.options import Flag, Fraction, NonNegative, Options, Positive, Text

MOST_BINS = 1_000_000

Activation = Literal["tanh", "relu", "lrelu", "elu", "linear"]


class PolicyOptions(Options):
    """Keys of every policy."""

    output: Literal["clip", "scale", "floor"] = Field(
        "clip",
        description="continuous actions: clip the output to the bounds, or tanh and scale it to them. floor also "
        "rounds the tanh down to a multiple of 1/6 (GoodAI's discrete). A discrete action is the largest output",
    )
    bins: Text | None = Field(
        None,
        description="continuous actions as a choice of values, the same for each number of an action: uniform:N from "
        "bound to bound, or custom:v1,v2,... (OpenAI's ac_bins)",
    )
    sampling: Literal["none", "gaussian", "softmax"] = Field(
        "none",
        description="in training: gaussian draws continuous actions around the output, with one learnt log std for "
        "each number, softmax draws discrete ones or bins; evaluations take the most likely",
    )
    action_noise: NonNegative = Field(
        0.0, description="standard deviation of normals added to continuous actions in training (OpenAI's ac_noise_std)"
    )
    time_input: Positive | None = Field(
        None, description="adds an input: the steps of the episode so far, divided by this number"
    )
    init_from: Text | None = Field(
        None,
        description="start from this run, policy file or trained recipe, with its observation statistics; `initial` is "
        "then ignored",
    )
    initial: Literal["scaled", "zeros"] = Field(
        "scaled", description="first parameters: columns of unit-norm normals (last layer 0.01), or zeros"
    )
    normalize_observations: Flag = Field(
        True, description="subtract the mean of the observations seen so far, and divide by their standard deviation"
    )
    observation_clip: Positive = Field(5.0, description="normalised observations are clipped to +- this")
    statistics_fraction: Fraction = Field(
        0.1, description="share of training episodes that feed the statistics (OpenAI's calc_obstat_prob)"
    )

    @field_validator("bins")
    @classmethod
    def _bins_are_valid(cls, bins: str | None) -> str | None:
        if bins is not None:
            parse_bins(bins)
        return bins


def parse_bins(text: str) -> int | npt.NDArray[np.float32]:
    """The number of bins of `uniform:N`, or the values of `custom:v1,v2,...`.

    Raises ValueError, which says what it must be, for anything else.
    """
    form, _, rest = text.partition(":")
    try:
        if form == "uniform" and 2 <= int(rest) <= MOST_BINS:
            return int(rest)
        if form == "custom":
            with np.errstate(over="ignore"):
                values = np.array([float(value) for value in rest.split(",")], np.float32)
            if len(values) >= 2 and np.isfinite(values).all():
                return values
    except ValueError:
        pass
    raise ValueError(f"must be uniform:N or custom:v1,v2,... with 2 to {MOST_BINS:,} values")
