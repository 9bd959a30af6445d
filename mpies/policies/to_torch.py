"""A trained policy as a PyTorch module, to be used or trained further there.  Importing this needs PyTorch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from mpies.envs.base import Continuous, Discrete
from mpies.policies.base import Policy, PolicyProblem
from mpies.policies.exported import FLOOR_STEPS
from mpies.policies.from_torch import Torch
from mpies.policies.mlp import MLP
from mpies.policies.recurrent import GRU, LSTM, Elman

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "lrelu": nn.LeakyReLU,  # its slope is 0.01, as in mpies
    "elu": nn.ELU,
    "linear": nn.Identity,
}
Array = npt.NDArray[np.float32]


class TorchPolicy(nn.Module):
    """From observations (n, o) float32 to actions: (n,) int64 or (n, a) float32, as an Actor returns them.

    A recurrent one takes (observations, state) and returns (actions, state), where state is that of its torch.nn.RNN,
    LSTM or GRU, and None at first.

    policy: an MLP, a recurrent policy, or a module of the user's.  parameters: (d,).  normalization: (2, o) or None.
    shown: indices of the observation's numbers that the policy sees; None for all.
    Raises PolicyProblem for other policies, bins, several kinds of actions at a time, and time_input.
    """

    center: torch.Tensor
    scale: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor
    shown: torch.Tensor | None

    def __init__(
        self,
        policy: Policy,
        parameters: Array,
        normalization: Array | None = None,
        shown: npt.NDArray[np.intp] | None = None,
    ) -> None:
        super().__init__()
        options, action = policy.options, policy.interface.action
        if not isinstance(policy, (MLP, LSTM, GRU, Elman, Torch)) or not isinstance(action, (Discrete, Continuous)):
            kind, actions = (type(value).__name__.lower() for value in (policy, action))
            raise PolicyProblem(
                f"policy.kind {kind} with {actions} actions cannot become a torch module; supported: mlp, lstm, gru, "
                "elman or torch, with Discrete or Box actions"
            )
        other = "" if isinstance(policy, Torch) else ", or export it as .py or .npz"
        for name in ("bins", "time_input"):
            if getattr(options, name) is not None:
                raise PolicyProblem(
                    f"a policy with policy.{name} cannot become a torch module; train without this key{other}"
                )
        if normalization is None:
            normalization = np.stack([np.zeros(policy.inputs), np.ones(policy.inputs)])
        self._clip = options.observation_clip if options.normalize_observations else np.inf
        self.register_buffer("shown", None if shown is None else torch.tensor(shown, dtype=torch.int64))
        self._keep("center", normalization[0])
        self._keep("scale", normalization[1])
        self._is_choice, self._output = isinstance(action, Discrete), options.output
        if isinstance(action, Continuous):
            self._keep("low", action.low)
            self._keep("high", action.high)
        parameters = np.array(parameters, np.float32)
        views = [torch.tensor(view[0].copy()) for view in policy.views(parameters[None])]
        blocks = views[: policy.network_blocks]
        self.recurrent: nn.RNNBase | None = None
        self.layers: nn.Module
        if isinstance(policy, Torch):
            self.layers = policy.copy_module(parameters)
        elif isinstance(policy, MLP):
            self.layers = _make_layers(policy, blocks)
        else:
            *units, weights, biases = blocks
            self.recurrent = _make_recurrent(policy, units)
            self.layers = _make_linear(weights, biases)

    def _keep(self, name: str, values: npt.NDArray[Any]) -> None:
        """Make an array part of the module, but no parameter."""
        self.register_buffer(name, torch.tensor(np.array(values, np.float32)))

    def outputs(self, observations: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, Any]:
        """What the last layer returns (n, outputs), before it becomes an action, and the state, None without one."""
        if self.shown is not None:
            observations = observations.index_select(-1, self.shown)
        inputs = ((observations - self.center) / self.scale).clamp(-self._clip, self._clip)
        if self.recurrent is not None:
            inputs, state = self.recurrent(inputs[:, None], state)  # (n, 1, o): one step of n episodes
            inputs = inputs[:, 0]
        return self.layers(inputs), state

    def forward(self, observations: torch.Tensor, state: Any = None) -> Any:
        """Actions, or for a recurrent policy (actions, state)."""
        outputs, state = self.outputs(observations, state)
        if self._is_choice:
            actions = outputs.argmax(-1)
        elif self._output != "clip":
            actions = outputs.tanh()
            if self._output == "floor":
                actions = torch.floor(actions * FLOOR_STEPS) / FLOOR_STEPS
            actions = (self.low + self.high) / 2 + (self.high - self.low) / 2 * actions
        else:
            actions = torch.clamp(outputs, self.low, self.high)
        return actions if self.recurrent is None else (actions, state)


def _make_layers(policy: MLP, blocks: list[torch.Tensor]) -> nn.Sequential:
    """The layers of a perceptron."""
    has_biases = policy.options.bias
    layers: list[nn.Module] = []
    for number in range(0, len(blocks), 2 if has_biases else 1):
        if layers:
            layers.append(ACTIVATIONS[policy.options.activation]())
        layers.append(_make_linear(blocks[number], blocks[number + 1] if has_biases else None))
    return nn.Sequential(*layers)


def _make_linear(weights: torch.Tensor, biases: torch.Tensor | None) -> nn.Linear:
    """A layer with weights (in, out) and biases (out,)."""
    rows, columns = weights.shape
    layer = nn.Linear(rows, columns, bias=biases is not None)
    layer.weight = nn.Parameter(weights.T.contiguous())
    if biases is not None:
        layer.bias = nn.Parameter(biases)
    return layer


def _make_recurrent(policy: LSTM | GRU | Elman, blocks: list[torch.Tensor]) -> nn.RNNBase:
    """The layer of units with these blocks.

    PyTorch has two biases for each gate; the second is 0 where mpies has one.
    """
    input_weights, recurrent_weights, biases, *more = blocks
    kinds: dict[type[Policy], Callable[..., nn.RNNBase]] = {LSTM: nn.LSTM, GRU: nn.GRU, Elman: nn.RNN}
    units = policy.options.hidden
    layer = kinds[type(policy)](policy.inputs, units, batch_first=True)
    second = torch.zeros_like(biases)
    if more:
        second[2 * units :] = more[0]
    for name, values in (
        ("weight_ih_l0", input_weights.T.contiguous()),
        ("weight_hh_l0", recurrent_weights.T.contiguous()),
        ("bias_ih_l0", biases),
        ("bias_hh_l0", second),
    ):
        setattr(layer, name, nn.Parameter(values))
    layer.flatten_parameters()
    return layer
