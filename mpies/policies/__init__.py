"""Policies in NumPy, many members at a time: from a member's flat parameters and observations to actions."""

from typing import Annotated, Literal, Union

from pydantic import Field

from mpies.policies.base import Policy, PolicyProblem, aligned_stack
from mpies.policies.convolutional import Convolutional
from mpies.policies.from_torch import Torch
from mpies.policies.mlp import ACTIVATIONS, MLP, MLPOptions
from mpies.policies.recurrent import GRU, LSTM, Elman
from mpies.solvers.options import Options

__all__ = ["ACTIVATIONS", "POLICIES", "MLPOptions", "PolicyProblem", "aligned_stack", "any_policy", "make_policy"]


class NoPolicyOptions(Options):
    """For test functions: the parameters themselves are what is evaluated."""

    kind: Literal["none"] = "none"


POLICIES: dict[str, type[Policy]] = {
    policy.Options.model_fields["kind"].default: policy for policy in (MLP, LSTM, GRU, Elman, Convolutional, Torch)
}


def any_policy():
    """The type of the policy section: the Options of every kind."""
    options = (*(policy.Options for policy in POLICIES.values()), NoPolicyOptions)
    return Annotated[Union[options], Field(discriminator="kind")]  # noqa: UP007


def make_policy(options, interface, constants=None):
    """The policy that `options` asks for.  constants: arrays besides the parameters that a saved one came with."""
    return POLICIES[options.kind](options, interface, constants)
