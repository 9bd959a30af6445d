"""Policies in NumPy: from the flat parameters of many members, and an observation for each, to their actions."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union

import numpy.typing as npt
from pydantic import Field

from mpies.core.options import Options
from mpies.envs.base import Interface
from mpies.policies.base import Architecture
from mpies.policies.convolutional import Convolutional
from mpies.policies.from_torch import Torch
from mpies.policies.keys import PolicyOptions
from mpies.policies.mlp import MLP
from mpies.policies.recurrent import GRU, LSTM, Elman


class NoPolicyOptions(Options):
    """For test functions: the parameters themselves are what is evaluated."""

    kind: Literal["none"] = "none"


# policy.kind -> class
POLICIES: dict[str, type[Architecture]] = {
    policy.Options.model_fields["kind"].default: policy for policy in (MLP, LSTM, GRU, Elman, Convolutional, Torch)
}


def any_policy() -> Any:
    """The type of the policy section: the union of all Options, told apart by `kind`."""
    options = (*(policy.Options for policy in POLICIES.values()), NoPolicyOptions)
    return Annotated[Union[options], Field(discriminator="kind")]  # noqa: UP007


def make_policy(
    options: PolicyOptions, interface: Interface, constants: Mapping[str, npt.NDArray[Any]] | None = None
) -> Architecture:
    """The policy that the options ask for, for an environment with this interface.

    constants: arrays that a saved policy has besides its parameters.  Raises ConfigError if the two do not fit.
    """
    return next(policy for policy in POLICIES.values() if isinstance(options, policy.Options))(
        options, interface, constants
    )
