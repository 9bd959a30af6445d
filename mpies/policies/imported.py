"""Policies that Stable-Baselines3 has trained, as the start of a run (policy.init_from).

They are the `.zip` of PPO, A2C, DQN, SAC, TD3 or DDPG with an MlpPolicy.  Nothing that such a file holds is run:
PyTorch reads its tensors and refuses everything else.
"""

import io
import json
import pickle
import re
import shlex
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.core.errors import ConfigError, import_extra
from mpies.envs.base import Continuous
from mpies.policies.base import Architecture
from mpies.policies.mlp import MLP

Array = npt.NDArray[Any]
Arrays = dict[str, Array]


@dataclass(frozen=True)
class _Perceptron:
    """A multi-layer perceptron of Stable-Baselines3.

    weights: (inputs, outputs) of each layer.  biases: (outputs,) of each.
    activation: policy.activation; None without hidden layers.  output: policy.output of continuous actions.
    log_stds: (a,) of the actions in training, None where there are none.
    """

    weights: Sequence[Array]
    biases: Sequence[Array]
    activation: str | None
    output: str
    log_stds: Array | None


def is_imported(path: Path) -> bool:
    """Whether this is a file of Stable-Baselines3, by its name."""
    return path.suffix == ".zip" and path.is_file()


def import_policy(path: Path, name: str, policy: Architecture) -> Arrays:
    """Names to arrays that a run of `policy` begins with: `parameters` (d,).

    path: a file for which is_imported is True.  name: the same as the user gave it.
    Raises ConfigError, with what to add to the config, where the two do not fit.
    """
    if not isinstance(policy, MLP) or not policy.options.bias:
        kind = "without them" if isinstance(policy, MLP) else type(policy.options).model_fields["kind"].default
        raise ConfigError(f"policy.init_from: {name} is an MLP with biases, but this policy is {kind}; use kind: mlp")
    try:
        found = _read_model(path)
    except Exception as error:  # the readers of zip, pickle and JSON raise anything where a file is damaged
        words = " ".join(str(error).split())
        raise ConfigError(f"policy.init_from: {name} cannot be used ({words}); see docs/policies.md") from None
    _check_fit(found, name, policy)
    layers = [part.ravel() for pair in zip(found.weights, found.biases, strict=True) for part in pair]
    parameters = np.concatenate(layers).astype(np.float32)
    if not np.isfinite(parameters).all():
        raise ConfigError(f"policy.init_from: {name} contains NaN or infinity; use another file")
    whole = policy.initial(0)  # its log stds, which come last, stay where the file has none
    whole[: len(parameters)] = parameters
    if found.log_stds is not None and len(whole) == len(parameters) + len(found.log_stds):
        whole[len(parameters) :] = found.log_stds
    return {"parameters": whole}


def _check_fit(found: _Perceptron, name: str, policy: MLP) -> None:
    """Raise ConfigError, with what to add to the config, where these weights do not fit the policy."""
    inputs, outputs = len(found.weights[0]), len(found.biases[-1])
    options, expected = policy.options, (policy.interface.observation_size, policy.outputs)
    if options.bins is None and (inputs, outputs) != expected:
        raise ConfigError(
            f"policy.init_from: {name} has {inputs} inputs and {outputs} outputs, but this environment needs "
            f"{expected[0]} and {expected[1]}; use the same environment"
        )
    needs: dict[str, Any] = {"hidden": [len(bias) for bias in found.biases[:-1]], "time_input": None, "bins": None}
    if isinstance(policy.interface.action, Continuous):
        needs["output"] = found.output
    if found.activation:
        needs["activation"] = found.activation
    needs["normalize_observations"] = False
    wrong = {key: value for key, value in needs.items() if getattr(options, key) != value}
    if wrong:
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in wrong.items()}
        settings = " ".join(shlex.quote(f"policy.{key}={text}") for key, text in texts.items())
        raise ConfigError(f"policy.init_from: {name} differs from this policy; add {settings}")


# Names of PyTorch's activations to those of mpies.
_ACTIVATIONS = {"Tanh": "tanh", "ReLU": "relu", "LeakyReLU": "lrelu", "ELU": "elu", "Identity": "linear"}
# Of each kind of actor: the layers before the last one, the last one, the activation where none was given, the output.
_ACTORS = (
    (("mlp_extractor.shared_net", "mlp_extractor.policy_net"), "action_net", "Tanh", "clip"),  # PPO, A2C
    (("actor.latent_pi",), "actor.mu", "ReLU", "scale"),  # SAC
    (("actor.mu",), None, "ReLU", "scale"),  # TD3, DDPG
    (("q_net.q_net",), None, "ReLU", "clip"),  # DQN
)


def _read_model(path: Path) -> _Perceptron:
    """The actor's layers in policy.pth, and from `data`, which is JSON, what is not the default."""
    with zipfile.ZipFile(path) as archive:
        data = json.loads(archive.read("data"))
        arrays = _read_tensors(archive.read("policy.pth"))
    if data.get("use_sde"):
        raise ValueError("it uses state-dependent exploration; train it without use_sde")
    if any(name.startswith("lstm") or "features_extractor" in name for name in arrays):
        raise ValueError("it is not an MlpPolicy; only policies without convolutions and recurrent layers can be read")
    names, default, output = _find_actor(arrays)
    given = str((data.get("policy_kwargs") or {}).get("activation_fn", default))
    activation = re.sub(r".*\.(\w+)'>", r"\1", given)
    if activation not in _ACTIVATIONS:
        raise ValueError(f"its activation {activation} is not one of {', '.join(_ACTIVATIONS)}")
    return _Perceptron(
        [arrays[f"{name}.weight"].T for name in names],
        [arrays[f"{name}.bias"] for name in names],
        _ACTIVATIONS[activation] if len(names) > 1 else None,
        output,
        arrays.get("log_std"),
    )


def _find_actor(arrays: Arrays) -> tuple[list[str], str, str]:
    """Of the actor: the names of its layers, the activation where none was given, and the output."""
    for hidden, last, activation, output in _ACTORS:
        names = [name for prefix in hidden for name in _layers_of(prefix, arrays)] + ([last] if last else [])
        if names and f"{names[-1]}.weight" in arrays:
            return names, activation, output
    raise ValueError("it has no actor of a known algorithm: PPO, A2C, DQN, SAC, TD3 or DDPG")


def _layers_of(prefix: str, arrays: Arrays) -> list[str]:
    """The names of the layers `PREFIX.NUMBER` of a torch.nn.Sequential, in order."""
    found = (re.fullmatch(rf"{re.escape(prefix)}\.(\d+)\.weight", name) for name in arrays)
    return [f"{prefix}.{number}" for number in sorted(int(match[1]) for match in found if match)]


def _read_tensors(content: bytes) -> Arrays:
    """The tensors that torch.save wrote.  Raises ValueError for anything but a dictionary of them."""
    torch = import_extra("torch", "PyTorch reads such a file, and is not installed", "torch")
    try:
        tensors = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:  # with a page of words about files that one trusts
        raise ValueError("it contains more than tensors") from None
    if not (isinstance(tensors, dict) and all(isinstance(value, torch.Tensor) for value in tensors.values())):
        raise ValueError("it contains more than tensors")
    return {name: value.numpy() for name, value in tensors.items()}
