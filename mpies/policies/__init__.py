"""Policies in NumPy, many members at a time: from a member's flat parameters and observations to actions."""

from typing import Literal, Union

from mpies.policies.base import PolicyOptions, PolicyProblem, aligned_stack
from mpies.policies.convolutional import Convolutional
from mpies.policies.from_torch import Torch
from mpies.policies.mlp import ACTIVATIONS, MLP, MLPOptions
from mpies.policies.recurrent import GRU, LSTM, Elman
from solvers.options import Options

__all__ = ["ACTIVATIONS", "POLICIES", "AnyPolicyOptions", "MLPOptions", "PolicyProblem", "aligned_stack", "make_policy"]

POLICIES: dict[str, type] = {
    policy.Options.model_fields["kind"].default: policy for policy in (MLP, LSTM, GRU, Elman, Convolutional, Torch)
}


class NoPolicyOptions(Options):
    """For test functions: the parameters themselves are what is evaluated."""

    kind: Literal["none"] = "none"


AnyPolicyOptions = Union[(*(policy.Options for policy in POLICIES.values()), NoPolicyOptions)]


def make_policy(options: PolicyOptions, interface, constants=None):
    """The policy that `options` asks for.  constants: arrays besides the parameters that a saved one came with."""
    return POLICIES[options.kind](options, interface, constants)
