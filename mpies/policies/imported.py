"""Policies that other programs have trained, as the start of a run (policy.init_from).

- Stable-Baselines3: the `.zip` of PPO, A2C, DQN, SAC, TD3 or DDPG with an MlpPolicy.
- OpenAI's evolution-strategies-starter: the `.h5` of its MujocoPolicy, with the observation statistics.
- estool: NAME.json and NAME.best.json.
- es_on_gke: model_N.npz and best_model.npz.

Nothing that these files hold is run.  A pickle in them is either not read, or by an unpickler that makes nothing but
arrays.
"""

import contextlib
import itertools
import json
import math
import pickle
import pickletools
import re
import shlex
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.core.errors import ConfigError, RunError
from mpies.envs.base import Continuous
from mpies.policies.base import Policy
from mpies.policies.mlp import MLP
from mpies.runs import hdf5
from mpies.runs.hdf5 import Arrays

OBSERVATIONS = 1e5  # that statistics without a count are taken to be of, as the starter does when it reads its own
_HDF5 = b"\x89HDF\r\n\x1a\n"  # how a file begins that h5py wrote; mpies' own have a header before it

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ForeignPolicy:
    """A multi-layer perceptron from elsewhere.

    weights: (inputs, outputs) of each layer.  biases: (outputs,) of each.
    needs: keys of the policy section to the values that make the same policy of these weights.
    log_deviations: (a,) of the actions in training, None where there are none.
    statistics: mean and standard deviation (2, o) of the observations, None where they were not normalised.
    """

    weights: Sequence[Array]
    biases: Sequence[Array]
    needs: Mapping[str, Any] = field(default_factory=dict)
    log_deviations: Array | None = None
    statistics: Array | None = None


def is_foreign(path: Path) -> bool:
    """Whether this is a policy file of another program."""
    if path.suffix not in READERS or not path.is_file():
        return False
    with contextlib.suppress(OSError), open(path, "rb") as file:  # who reads it next says what is wrong
        return path.suffix != ".h5" or file.read(len(_HDF5)) == _HDF5
    return False


def read_first_policy(path: Path, name: str, policy: Policy) -> Arrays:
    """Names to arrays that a run of `policy` begins with: `parameters` (d,), and observation statistics if known.

    path: a file for which is_foreign is True.  name: the same as the user gave it.
    Raises ConfigError, with what to add to the config, where the two do not fit.
    """
    if not isinstance(policy, MLP) or not policy.options.bias:
        kind = "without them" if isinstance(policy, MLP) else type(policy.options).model_fields["kind"].default
        raise ConfigError(f"policy.init_from: {name} is an MLP with biases, but this policy is {kind}; use kind: mlp")
    try:
        found = READERS[path.suffix](path, policy)
    except RunError as error:
        raise ConfigError(f"policy.init_from: {name} {str(error).removeprefix(f'{path}: ')}") from None
    except Exception as error:  # the readers of zip, pickle, JSON and HDF5 raise anything where a file is damaged
        words = " ".join(str(error).split())
        raise ConfigError(f"policy.init_from: {name} cannot be used ({words}); see docs/policies.md") from None
    check_fit(found, name, policy)
    layers = [part.ravel() for pair in zip(found.weights, found.biases, strict=True) for part in pair]
    parameters = np.concatenate(layers).astype(np.float32)
    statistics = np.zeros(0) if found.statistics is None else found.statistics
    if not (np.isfinite(parameters).all() and np.isfinite(statistics).all()):
        raise ConfigError(f"policy.init_from: {name} contains NaN or infinity; use another file")
    whole = policy.initial(0)  # its log deviations, which come last, stay where the file has none
    whole[: len(parameters)] = parameters
    if found.log_deviations is not None and len(whole) == len(parameters) + len(found.log_deviations):
        whole[len(parameters) :] = found.log_deviations
    arrays = {"parameters": whole}
    if found.statistics is not None:
        mean, deviation = found.statistics.astype(np.float64)
        squares = OBSERVATIONS * (mean * mean + deviation * deviation)
        sums = {"count": np.array([OBSERVATIONS]), "total": OBSERVATIONS * mean, "squares": squares}
        arrays |= {f"normalizer/{key}": value for key, value in sums.items()}
        arrays["normalization"] = found.statistics.astype(np.float32)
    return arrays


def check_fit(found: ForeignPolicy, name: str, policy: MLP) -> None:
    """Raise ConfigError, with what to add to the config, where these weights do not fit the policy."""
    inputs, outputs = len(found.weights[0]), len(found.biases[-1])
    expected = policy.inputs, policy.outputs
    if "time_input" in found.needs:
        expected = policy.interface.observation_size, policy.outputs
    if found.needs.get("bins") == policy.options.bins and (inputs, outputs) != expected:
        raise ConfigError(
            f"policy.init_from: {name} has {inputs} inputs and {outputs} outputs, but this environment needs "
            f"{expected[0]} and {expected[1]}; use the same environment"
        )
    needs = {"hidden": [len(bias) for bias in found.biases[:-1]], **found.needs}
    needs["normalize_observations"] = found.statistics is not None
    if not isinstance(policy.interface.action, Continuous):
        needs.pop("output", None)
    wrong = {key: value for key, value in needs.items() if getattr(policy.options, key) != value}
    if wrong:
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in wrong.items()}
        settings = " ".join(shlex.quote(f"policy.{key}={text}") for key, text in texts.items())
        raise ConfigError(f"policy.init_from: {name} differs from this policy; add {settings}")
    if (inputs, outputs) != (policy.inputs, policy.outputs):
        raise ConfigError(f"policy.init_from: {name} is for another environment; use the same one")


def read_openai(path: Path, policy: MLP) -> ForeignPolicy:
    """What MujocoPolicy.save wrote: a variable each, and how it was made as a pickle, whose words are read."""
    arrays, attributes = hdf5.read_foreign(path)
    named = {name.split("/", 1)[1].removesuffix(":0"): value for name, value in arrays.items() if "/" in name}
    if "out/w" not in named:
        raise ValueError("it has no variable MujocoPolicy/out/w")
    numbers = sorted(int(found[1]) for name in named if (found := re.fullmatch(r"l(\d+)/w", name)))
    layers = [*(f"l{number}" for number in numbers), "out"]
    made = (
        _pickled_words(np.asarray(attributes["args_and_kwargs"]).tobytes()) if "args_and_kwargs" in attributes else {}
    )
    needs: dict[str, Any] = {"output": "clip", "time_input": None, "observation_clip": 5.0}
    bins = made.get("ac_bins", "continuous:")
    needs["bins"] = None if bins.startswith("continuous") else bins
    if "nonlin_type" in made:
        if made["nonlin_type"] == "lrelu":
            raise ValueError("its lrelu has a slope of 0.2, but that of mpies has 0.01")
        needs["activation"] = made["nonlin_type"]
    return ForeignPolicy(
        [named[f"{layer}/w"] for layer in layers],
        [named[f"{layer}/b"] for layer in layers],
        needs,
        statistics=np.stack([named["ob_mean"], named["ob_std"]]),
    )


def _pickled_words(content: bytes) -> dict[str, str]:
    """Each text of a pickle to the text after it.  Nothing is unpickled."""
    words = [argument for _, argument, _ in pickletools.genops(content) if isinstance(argument, str)]
    return dict(itertools.pairwise(words))


def read_estool(path: Path, policy: MLP) -> ForeignPolicy:
    """A list whose first entry has the parameters: of each layer the weights, the biases and, if noisy, deviations.

    Only the last layer may be noisy; there exp(x / 2) is the deviation before the tanh.
    """
    data = json.loads(path.read_text())
    if not (isinstance(data, list) and data and isinstance(data[0], list) and len(data[0]) > 3):
        raise ValueError("its first entry is not a list of parameters; give NAME.json or NAME.best.json")
    parameters = np.array(data[0], np.float64)
    size, outputs = sum(rows * columns + columns for rows, columns in policy.layers), policy.outputs
    has_deviations = len(parameters) == size + outputs
    layers = _split(parameters[:size] if has_deviations else parameters, policy)
    deviations = parameters[size:] / 2 if has_deviations else None
    return ForeignPolicy(*layers, log_deviations=deviations)


def read_es_on_gke(path: Path, policy: MLP) -> ForeignPolicy:
    """The array `params`: of each layer the weights, an output in each row, and the biases.  The last one is tanh."""
    with np.load(path, allow_pickle=False) as arrays:
        parameters = np.asarray(arrays["params"], np.float64)
    layers = _split(parameters, policy, outputs_first=True)
    return ForeignPolicy(*layers, needs={"output": "scale", "bins": None, "time_input": None})


def _split(parameters: Array, policy: MLP, outputs_first: bool = False) -> tuple[list[Array], list[Array]]:
    """Weights (inputs, outputs) and biases of each layer, which have the sizes of the policy's.

    outputs_first: whether the weights stand as (outputs, inputs).
    """
    size = sum(rows * columns + columns for rows, columns in policy.layers)
    if parameters.shape != (size,):
        sizes = "-".join(str(width) for width in (policy.inputs, *policy.options.hidden, policy.outputs))
        raise ValueError(
            f"it has {parameters.size:,} parameters, but an MLP of {sizes} has {size:,}; set policy.hidden"
        )
    weights, biases, start = [], [], 0
    for rows, columns in policy.layers:
        block = parameters[start : start + rows * columns]
        weights.append(block.reshape(columns, rows).T if outputs_first else block.reshape(rows, columns))
        start += rows * columns + columns
        biases.append(parameters[start - columns : start])
    return weights, biases


# Names of PyTorch's activations to those of mpies.
_ACTIVATIONS = {"Tanh": "tanh", "ReLU": "relu", "LeakyReLU": "lrelu", "ELU": "elu", "Identity": "linear"}
# Of each kind of actor: the layers before the last one, the last one, the activation where none was given, the output.
_ACTORS = (
    (("mlp_extractor.shared_net", "mlp_extractor.policy_net"), "action_net", "Tanh", "clip"),  # PPO, A2C
    (("actor.latent_pi",), "actor.mu", "ReLU", "scale"),  # SAC
    (("actor.mu",), None, "ReLU", "scale"),  # TD3, DDPG
    (("q_net.q_net",), None, "ReLU", "clip"),  # DQN
)


def read_stable_baselines3(path: Path, policy: MLP) -> ForeignPolicy:
    """The actor's layers in policy.pth, and from `data`, which is JSON, what is not the default."""
    with zipfile.ZipFile(path) as archive:
        data = json.loads(archive.read("data"))
        with zipfile.ZipFile(archive.open("policy.pth")) as tensors:
            arrays = read_tensors(tensors)
    if data.get("use_sde"):
        raise ValueError("it uses state-dependent exploration; train it without use_sde")
    if any(name.startswith("lstm") or "features_extractor" in name for name in arrays):
        raise ValueError("it is not an MlpPolicy; only policies without convolutions and recurrent layers can be read")
    names, default, output = _find_actor(arrays)
    given = str((data.get("policy_kwargs") or {}).get("activation_fn", default))
    activation = re.sub(r".*\.(\w+)'>", r"\1", given)
    if activation not in _ACTIVATIONS:
        raise ValueError(f"its activation {activation} is not one of {', '.join(_ACTIVATIONS)}")
    needs = {"output": output, "time_input": None, "bins": None}
    if len(names) > 1:
        needs["activation"] = _ACTIVATIONS[activation]
    return ForeignPolicy(
        [arrays[f"{name}.weight"].T for name in names],
        [arrays[f"{name}.bias"] for name in names],
        needs,
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


_STORAGES = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2", "LongStorage": "<i8"}


class _TensorUnpickler(pickle.Unpickler):
    """Reads the dictionary of tensors that torch.save wrote.  It makes arrays and OrderedDicts, nothing else."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        super().__init__(archive.open(name))
        self._archive, self._folder = archive, name.removesuffix("data.pkl")

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, start, shape, strides, *_: _take(storage, start, shape, strides)
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        raise pickle.UnpicklingError(f"it contains {module}.{name}, which is not a tensor")

    def persistent_load(self, identity: Any) -> Array:
        _, kind, key, *_ = identity
        return np.frombuffer(self._archive.read(f"{self._folder}data/{key}"), kind)


def _take(storage: Array, start: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """A tensor whose numbers follow one another in a storage."""
    dense = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    end = start + math.prod(shape)
    if tuple(strides) != dense or not 0 <= start <= end <= len(storage):
        raise pickle.UnpicklingError("it contains a tensor that is not contiguous")
    return storage[start:end].reshape(shape)


def read_tensors(archive: zipfile.ZipFile) -> Arrays:
    """The tensors in a file that torch.save wrote.  Raises UnpicklingError for anything but a dictionary of them."""
    name = next((name for name in archive.namelist() if name.endswith("/data.pkl")), None)
    if name is None:
        raise ValueError("it has no data.pkl")
    order = next((name for name in archive.namelist() if name.endswith("/byteorder")), None)
    if order and archive.read(order) != b"little":
        raise ValueError("its numbers are big-endian")
    try:
        tensors = _TensorUnpickler(archive, name).load()
    except (AttributeError, IndexError, TypeError) as error:  # of a pickle that was tampered with
        raise pickle.UnpicklingError(str(error)) from None
    if not (isinstance(tensors, dict) and all(isinstance(value, np.ndarray) for value in tensors.values())):
        raise ValueError("it contains more than tensors")
    return dict(tensors)


READERS: dict[str, Callable[[Path, MLP], ForeignPolicy]] = {
    ".zip": read_stable_baselines3,
    ".h5": read_openai,
    ".json": read_estool,
    ".npz": read_es_on_gke,
}
