"""A trained policy that needs only NumPy.

    policy = Policy()                  # in a file that `mpies export` wrote; else Policy(numpy.load("policy.npz"))
    policy.reset()                     # when an episode begins; only recurrent policies and time_input need it
    action = policy(observation)       # of one observation (o,), or of several (m, o)

It computes what training computed, in the same order, so its actions have the same bits.  This file defines that
arithmetic: training uses its networks, or compiled ones that tests compare with them.
`mpies export` writes this file with the parameters in DATA.
"""

import base64
import io
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

DATA = ""  # an .npz file in base 85

FLOOR_STEPS = 6  # of `output: floor`, from 0 to 1
_CACHE_LINE = 16  # float32 numbers


class ExportedPolicy:
    """From observations to actions.

    An observation is a vector (o,); gymnasium.spaces.utils.flatten makes one of a Dict, a Tuple or a whole number.
    It holds all numbers; those of environment.hide are dropped here.
    An action is an int, from 0, where the environment's is Discrete; else (a,) float32.  Of composite actions these are
    the numbers of its parts one after the other, and a Discrete part is one number, from 0.

    arrays: a mapping that has what `mpies export` writes to an .npz file.  The default is what this file holds in DATA.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray] | None = None) -> None:
        if arrays is None:
            arrays = np.load(io.BytesIO(base64.b85decode(DATA)), allow_pickle=False)
        self.about, self.kind = str(arrays["about"]), str(arrays["kind"])
        self.size, self.shown = int(arrays["observation_size"]), arrays.get("shown")  # indices, or None for all
        self.clip = np.float32(arrays["observation_clip"])
        self.normalization = arrays.get("normalization")  # (2, o) mean and standard deviation, or None
        self.horizon = arrays.get("time_input")  # steps that the time as an input is divided by, or None
        # Name and array of each head: "choice" and "signs" with the number of outputs, "clip", "scale" and
        # "floor" with the bounds (2, a) of continuous numbers, "bins" with the values (a, k) that each may take.
        self.heads = [(str(name), arrays[f"head_{number}"]) for number, name in enumerate(arrays["heads"])]
        self.is_index = self.heads[0][0] == "choice" and not arrays["is_composite"]
        self.parameters = aligned_stack(1, len(arrays["parameters"]))
        self.parameters[:] = arrays["parameters"]
        blocks, start = [], 0
        for shape in arrays["shapes"].tolist():  # (rows, columns), or (k, 0) of a vector
            shape = [size for size in shape if size]
            blocks.append(self.parameters[:, start : start + math.prod(shape)].reshape(1, *shape))
            start += math.prod(shape)
        self.blocks, self.network = blocks, NETWORKS[self.kind](blocks, arrays)
        self.reset()

    def reset(self) -> None:
        """Begin an episode, or one for each observation of the next call."""
        self._rows, self._step = 0, 0

    def __call__(self, observation: np.ndarray) -> int | np.ndarray:
        """The action of an observation (o,): an int or (a,) float32.  Of several (m, o): an array of m actions.

        Rows of several observations are of different episodes.  Raises ValueError for another shape, and where the
        number of rows changes during episodes of a policy that carries something from step to step.
        """
        x = np.asarray(observation, np.float32)
        if x.ndim not in (1, 2) or x.shape[-1] != self.size:
            raise ValueError(f"an observation must be a vector of {self.size} numbers, but has shape {x.shape}")
        is_one, x = x.ndim == 1, np.atleast_2d(x)
        if self.shown is not None:
            x = x[:, self.shown]
        if (isinstance(self.network, RecurrentNetwork) or self.horizon is not None) and self._rows != len(x):
            if self._rows:
                raise ValueError(
                    f"{self._rows} episodes are in progress; call reset before you pass {len(x)} observations"
                )
            if isinstance(self.network, RecurrentNetwork):
                self.network.allocate(len(x))
            self._rows = len(x)
        if self.normalization is not None:
            x = np.divide(np.subtract(x, self.normalization[0]), self.normalization[1])
            x = np.maximum(np.minimum(x, self.clip), -self.clip)
        if self.horizon is not None:
            time = np.full((len(x), 1), self._step / float(self.horizon), np.float32)
            x, self._step = np.concatenate([x, time], axis=1), self._step + 1
        actions = self._decide(self.network(x))
        if not is_one:
            return actions
        return int(actions[0]) if self.is_index else actions[0]

    def _decide(self, outputs: np.ndarray) -> np.ndarray:
        """Actions (m,) int32 or (m, a) float32 of outputs (m, width): the most likely ones."""
        parts, start = [], 0
        for name, data in self.heads:
            width = int(data) if data.ndim == 0 else data.size if name == "bins" else data.shape[1]
            parts.append(DECIDE[name](outputs[:, start : start + width], data))
            start += width
        if self.is_index:
            return parts[0].astype(np.int32)
        return np.concatenate([part.reshape(len(outputs), -1) for part in parts], axis=1, dtype=np.float32)


Policy = ExportedPolicy  # its name in a program that uses an exported file


# What a head makes of its outputs (m, width).
DECIDE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "choice": lambda outputs, count: outputs.argmax(axis=1),
    "signs": lambda outputs, count: outputs > 0,
    "clip": lambda outputs, bounds: np.clip(outputs, bounds[0], bounds[1]),
    "scale": lambda outputs, bounds: (bounds[0] + bounds[1]) / 2 + (bounds[1] - bounds[0]) / 2 * np.tanh(outputs),
    "floor": lambda outputs, bounds: (
        (bounds[0] + bounds[1]) / 2
        + (bounds[1] - bounds[0]) / 2 * (np.floor(np.tanh(outputs) * FLOOR_STEPS) / FLOOR_STEPS)
    ),
    "bins": lambda outputs, values: values[
        np.arange(len(values)), outputs.reshape(len(outputs), *values.shape).argmax(axis=-1)
    ],
}


def aligned_stack(count: int, size: int) -> np.ndarray:
    """Zeros (count, size) float32 whose rows begin on cache lines, so that all members have the same alignment."""
    stride = -(-size // _CACHE_LINE) * _CACHE_LINE
    memory = np.zeros(count * stride + _CACHE_LINE, np.float32)
    skip = (-memory.ctypes.data // 4) % _CACHE_LINE
    return memory[skip : skip + count * stride].reshape(count, stride)[:, :size]


# The networks.  They compute outputs (m, out) for inputs (m, in) of the first m of n members.  Each member has its own
# blocks of parameters, arrays (n, rows, columns) or (n, k).  An exported policy is a single member that serves any m.


class PerceptronNetwork:
    """Dense layers.

    blocks: the weights (n, in, out) of each layer, with has_biases each followed by its biases (n, out).
    activation: applied in place to the outputs of all layers but the last.
    """

    states: tuple[np.ndarray, ...] = ()

    def __init__(
        self, blocks: Sequence[np.ndarray], has_biases: bool, activation: Callable[[np.ndarray], None]
    ) -> None:
        self.activation = activation
        biases = blocks[1::2] if has_biases else [None] * len(blocks)
        self.layers = list(zip(blocks[::2] if has_biases else blocks, biases, strict=True))

    def begin(self, slot: int) -> None:
        """Nothing to do: nothing is carried from step to step."""

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        count, x = len(inputs), inputs
        for number, (weights, biases) in enumerate(self.layers):
            if number:
                self.activation(x)
            x = dense(x, weights[:count], None if biases is None else biases[:count])
        return x


def dense(x: np.ndarray, weights: np.ndarray, biases: np.ndarray | None = None) -> np.ndarray:
    """Outputs (m, ..., out) of a layer with inputs (m, ..., in), all float32.

    weights: (m, in, out), or one axis more for each of `...`.  biases: (m, out), likewise.
    Each output is its bias plus the products of inputs and weights, added one after the other in the inputs' order.
    """
    y = np.zeros((*x.shape[:-1], weights.shape[-1]), np.float32)
    if biases is not None:
        y[:] = biases  # a bias of -0.0 added to 0.0 would become 0.0
    for number in range(weights.shape[-2]):
        y += x[..., number, None] * weights[..., number, :]
    return y


def tanh(x: np.ndarray) -> np.ndarray:
    """Hyperbolic tangent of x (float32), with an error of at most 4.5e-7.

    It is x P(x^2) / Q(x^2) with P and Q of degree 4, fitted to [-9, 9].  np.tanh differs between processors; this does
    not.
    """
    x = np.maximum(np.minimum(x, 9), -9)
    u = x * x
    numerator = (((1.3355054e-08 * u + 2.06093973e-05) * u + 0.00349560869) * u + 0.133810431) * u + 1
    denominator = (((7.77672824e-07 * u + 0.000328566763) * u + 0.0258770622) * u + 0.467143595) * u + 1
    return x * numerator / denominator


def _elu(x: np.ndarray) -> None:
    t = tanh(np.minimum(x, 0) * 0.5)
    np.copyto(x, (t + t) / (1 - t), where=x < 0)  # exp(x) - 1


# They work in place.
ACTIVATIONS: dict[str, Callable[[np.ndarray], None]] = {
    "tanh": lambda x: np.copyto(x, tanh(x)),
    "relu": lambda x: np.copyto(x, 0, where=x < 0),
    "lrelu": lambda x: np.copyto(x, x * 0.01, where=x < 0),
    "elu": _elu,
    "linear": lambda x: None,
}


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)) of x (float32), with an error of at most 2.3e-7."""
    return tanh(x * 0.5) * 0.5 + 0.5


class RecurrentNetwork:
    """A layer of u units with g gates, then a dense layer.

    input_weights: (n, in, g u).  recurrent_weights: (n, u, g u).  biases: (n, g u).
    rest: what a subclass needs besides, then the weights (n, u, out) and biases (n, out) of the dense layer.
    states: the units' values (n, u), and what else a unit keeps.
    """

    arrays_of_state = 1

    def __init__(
        self, input_weights: np.ndarray, recurrent_weights: np.ndarray, biases: np.ndarray, *rest: np.ndarray
    ) -> None:
        *self.more, self.out_weights, self.out_biases = rest
        self.input_weights, self.recurrent_weights, self.biases = input_weights, recurrent_weights, biases
        self.allocate(len(recurrent_weights))

    def allocate(self, slots: int) -> None:
        """Begin an episode in each of so many slots."""
        units = self.recurrent_weights.shape[1]
        self.states = tuple(np.zeros((slots, units), np.float32) for _ in range(self.arrays_of_state))

    def begin(self, slot: int) -> None:
        """Begin an episode in a slot."""
        for state in self.states:
            state[slot] = 0

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        count = len(inputs)
        units = self.states[0][:count]
        self.step(units, dense(inputs, self.input_weights[:count], self.biases[:count]))
        return dense(units, self.out_weights[:count], self.out_biases[:count])

    def step(self, units: np.ndarray, sums: np.ndarray) -> None:
        """Replace `units` (m, u) by their next values.  sums: (m, g u) biases plus weighted inputs of the gates."""
        raise NotImplementedError


class ElmanNetwork(RecurrentNetwork):
    """Elman units."""

    def step(self, units: np.ndarray, sums: np.ndarray) -> None:
        units[:] = tanh(dense(units, self.recurrent_weights[: len(units)], sums))


class LSTMNetwork(RecurrentNetwork):
    """LSTM units; gates in the order input, forget, candidate, output."""

    arrays_of_state = 2  # with the cells

    def step(self, units: np.ndarray, sums: np.ndarray) -> None:
        sums = dense(units, self.recurrent_weights[: len(units)], sums)
        input_gate, forget_gate, candidates, output_gate = np.split(sums, 4, axis=1)
        cells = self.states[1][: len(units)]
        cells *= sigmoid(forget_gate)
        cells += sigmoid(input_gate) * tanh(candidates)
        np.multiply(sigmoid(output_gate), tanh(cells), out=units)


class GRUNetwork(RecurrentNetwork):
    """GRU units; gates in the order reset, update, candidate.  The last has biases for the units' values besides."""

    def step(self, units: np.ndarray, sums: np.ndarray) -> None:
        count, size = units.shape
        candidates = sums[:, 2 * size :].copy()
        sums[:, 2 * size :] = self.more[0][:count]
        sums = dense(units, self.recurrent_weights[:count], sums)
        reset_gate, update_gate = sigmoid(sums[:, :size]), sigmoid(sums[:, size : 2 * size])
        candidates = tanh(candidates + reset_gate * sums[:, 2 * size :])
        units *= update_gate
        units += (1 - update_gate) * candidates


class ImageNetwork:
    """Convolutions and dense layers.

    A convolution is a dense layer for each patch of its images.  A dense layer has one patch, the whole input.
    Images are laid out as (height, width, channels), and so are the weights of a patch, so that copies run long.

    images: (height, width, channels) of what each convolution sees.  convolutions: (filters, size, stride) of each.
    patches: of each hidden layer.  has_factors: whether hidden layers are normalised by factors and offsets.
    states: with has_factors, for each hidden layer an array (n, 2, patches * units) of its factors and offsets.
    """

    def __init__(
        self,
        blocks: Sequence[np.ndarray],
        images: Sequence[Sequence[int]],
        convolutions: Sequence[Sequence[int]],
        patches: Sequence[int],
        activation: Callable[[np.ndarray], None],
        has_factors: bool,
    ) -> None:
        self.images, self.convolutions = images, convolutions
        self.activation, self.has_factors = activation, has_factors
        per_layer = 3 if has_factors else 2  # weights, shifts, and scales
        hidden, (self.out_weights, self.out_biases) = blocks[:-2], blocks[-2:]
        self.layers = [hidden[k : k + per_layer] for k in range(0, len(hidden), per_layer)]
        sizes = [count * layer[0].shape[2] for count, layer in zip(patches, self.layers, strict=True)]
        self.states: tuple[np.ndarray, ...] = ()
        if has_factors:
            self.states = tuple(np.zeros((len(self.out_weights), 2, size), np.float32) for size in sizes)

    def begin(self, slot: int) -> None:
        """Begin an episode in a slot."""

    def scale_pixels(self, observations: np.ndarray) -> np.ndarray:
        """Images (k, height, width, channels) from 0 to 1, of observations (k, o) that have channels first."""
        height, width, channels = self.images[0]
        images = np.empty((len(observations), height, width, channels), np.float32)
        for channel, plane in enumerate(observations.reshape(-1, channels, height, width).swapaxes(0, 1)):
            np.divide(plane, np.float32(255), out=images[..., channel])
        return images

    def take_patches(self, number: int, x: np.ndarray) -> np.ndarray:
        """The rows (k, patches, in) that layer `number` multiplies, of the outputs x (k, ...) of the layer before."""
        if number >= len(self.images):
            return x.reshape(len(x), 1, -1)
        _, size, stride = self.convolutions[number]
        images = x.reshape(len(x), *self.images[number])
        windows = np.lib.stride_tricks.sliding_window_view(images, (size, size), axis=(1, 2))[:, ::stride, ::stride]
        _, rows, columns, channels, _, _ = windows.shape
        patches = np.ascontiguousarray(windows.transpose(0, 1, 2, 4, 5, 3))
        return patches.reshape(len(x), rows * columns, size * size * channels)

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        count = len(inputs)
        x = self.scale_pixels(inputs)
        for number, (weights, shifts, *_) in enumerate(self.layers):
            rows, weights, shifts = self.take_patches(number, x), weights[:count, None], shifts[:count, None]
            if self.has_factors:
                x, state = dense(rows, weights).reshape(count, -1), self.states[number]
                x *= state[:count, 0]
                x += state[:count, 1]
            else:
                x = dense(rows, weights, shifts)
            self.activation(x)
        return dense(x.reshape(count, -1), self.out_weights[:count], self.out_biases[:count])


def _images(blocks: list[np.ndarray], arrays: Mapping[str, np.ndarray]) -> ImageNetwork:
    images, convolutions, patches = (arrays[name].tolist() for name in ("images", "convolutions", "patches"))
    activation, has_factors = ACTIVATIONS[str(arrays["activation"])], bool(arrays["has_factors"])
    network = ImageNetwork(blocks, images, convolutions, patches, activation, has_factors)
    for number, state in enumerate(network.states):
        state[0] = arrays[f"factors_{number}"]
    return network


NETWORKS: dict[str, Callable[[list[np.ndarray], Mapping[str, np.ndarray]], Callable[[np.ndarray], np.ndarray]]] = {
    "mlp": lambda blocks, arrays: PerceptronNetwork(
        blocks, bool(arrays["bias"]), ACTIVATIONS[str(arrays["activation"])]
    ),
    "lstm": lambda blocks, arrays: LSTMNetwork(*blocks),
    "gru": lambda blocks, arrays: GRUNetwork(*blocks),
    "elman": lambda blocks, arrays: ElmanNetwork(*blocks),
    "conv": _images,
}
