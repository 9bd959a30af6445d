"""An exported policy as an ONNX model."""

from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.core.errors import import_extra
from mpies.policies.exported import (
    FLOOR_STEPS,
    ExportedPolicy,
    ImageNetwork,
    LSTMNetwork,
    PerceptronNetwork,
    RecurrentNetwork,
)

# Activations to the operation in ONNX and its attributes.
_ACTIVATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "tanh": ("Tanh", {}),
    "relu": ("Relu", {}),
    "lrelu": ("LeakyRelu", {"alpha": 0.01}),
    "elu": ("Elu", {}),
    "linear": ("Identity", {}),
}

Arrays = dict[str, npt.NDArray[Any]]

_FLOAT = 1  # of onnx.TensorProto


class Graph:
    """Nodes of an ONNX graph, in order.  initializers: names to constant inputs of nodes.

    Raises ConfigError where onnx is not installed.
    """

    def __init__(self) -> None:
        self.onnx = import_extra("onnx", "an .onnx needs a package that is not installed", "onnx")
        self.nodes: list[Any] = []
        self.initializers: Arrays = {}

    def add(self, kind: str, *inputs: str | npt.ArrayLike, output: str = "", **attributes: Any) -> str:
        """Add an operation.  inputs: names of values, or constants: whole numbers as int64, others as float32.

        Returns the name of its output; `output` names it.
        """
        place, names = len(self.nodes), []
        for number, value in enumerate(inputs):
            if not isinstance(value, str):
                array, value = np.asarray(value), f"constant_{place}_{number}"
                self.initializers[value] = array.astype(np.int64 if array.dtype.kind in "iu" else np.float32)
            names.append(value)
        output = output or f"value_{place}"
        self.nodes.append(self.onnx.helper.make_node(kind, names, [output], **attributes))
        return output

    def columns(self, value: str, start: int, stop: int) -> str:
        """Columns start .. stop - 1 of a value (n, k)."""
        return self.add("Slice", value, [start], [stop], [1])


def as_onnx(policy: ExportedPolicy, arrays: Arrays) -> bytes:
    """An ONNX model from `observation` (n, o) float32 to `action`: int64 (n,) or float32 (n, a).

    Where a policy carries something from step to step, the model also takes `state` (n, s) float32, zeros when an
    episode begins, and returns `next_state`.  policy: that of the arrays.
    """
    graph = Graph()
    onnx = graph.onnx
    action_width, state_width = _add_policy(graph, policy, str(arrays.get("activation", "")))
    types, describe = onnx.TensorProto, onnx.helper.make_tensor_value_info
    inputs = [describe("observation", types.FLOAT, ["n", policy.size])]
    outputs = [describe("action", types.FLOAT, ["n", action_width])]
    if policy.is_index:
        outputs = [describe("action", types.INT64, ["n"])]
    if state_width:
        inputs.append(describe("state", types.FLOAT, ["n", state_width]))
        outputs.append(describe("next_state", types.FLOAT, ["n", state_width]))
    initializers = graph.initializers.items()
    onnx_graph = onnx.helper.make_graph(
        graph.nodes,
        "policy",
        inputs,
        outputs,
        [onnx.numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in initializers],
        doc_string=policy.about,
    )
    # Runtimes read opset 17 and format 8 since 2022.
    model = onnx.helper.make_model(onnx_graph, opset_imports=[onnx.helper.make_opsetid("", 17)], producer_name="mpies")
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


def _add_policy(graph: Graph, policy: ExportedPolicy, activation: str) -> tuple[int, int]:
    """Add the nodes of a policy.  Returns the numbers of an action and of a state."""
    x, next_state, state_width = "observation", [], 0
    if policy.shown is not None:
        x = graph.add("Gather", x, policy.shown, axis=1)
    if policy.normalization is not None:
        x = graph.add("Div", graph.add("Sub", x, policy.normalization[0]), policy.normalization[1])
        x = graph.add("Clip", x, -policy.clip, policy.clip)
    network = policy.network
    if isinstance(network, RecurrentNetwork):
        state_width = network.arrays_of_state * network.recurrent_weights.shape[1]
    if policy.horizon is not None:
        step = graph.columns("state", state_width, state_width + 1)
        x = graph.add("Concat", x, graph.add("Div", step, np.float32(policy.horizon)), axis=1)
        next_state.append(graph.add("Add", step, np.float32(1)))
    if isinstance(network, RecurrentNetwork):
        outputs, parts = _add_units(graph, network, x)
        next_state = parts + next_state
    elif isinstance(network, ImageNetwork):
        outputs = _add_convolutions(graph, network, activation, x)
    else:
        assert isinstance(network, PerceptronNetwork)
        outputs = _add_perceptron(graph, network, activation, x)
    if next_state:
        graph.add("Concat", *next_state, output="next_state", axis=1)
    return _add_heads(graph, policy, outputs), state_width + (policy.horizon is not None)


def _add_dense(graph: Graph, x: str, weights: npt.NDArray[Any], biases: npt.NDArray[Any] | None = None) -> str:
    """Add a layer of the only member.  weights: (1, in, out).  biases: (1, out).  Returns its outputs."""
    x = graph.add("MatMul", x, weights[0])
    return x if biases is None else graph.add("Add", x, biases[0])


def _add_perceptron(graph: Graph, network: PerceptronNetwork, activation: str, x: str) -> str:
    """Add the layers of a perceptron.  Returns its outputs."""
    kind, attributes = _ACTIVATIONS[activation]
    for number, (weights, biases) in enumerate(network.layers):
        if number:
            x = graph.add(kind, x, **attributes)
        x = _add_dense(graph, x, weights, biases)
    return x


def _add_units(graph: Graph, network: RecurrentNetwork, x: str) -> tuple[str, list[str]]:
    """Add a step of recurrent units and the layer after them.  Returns its outputs and the parts of the next state."""
    size = network.recurrent_weights.shape[1]
    units = graph.columns("state", 0, size)
    from_inputs = _add_dense(graph, x, network.input_weights, network.biases)
    from_units = _add_dense(graph, units, network.recurrent_weights)

    def gate(value: str, number: int) -> str:
        return graph.columns(value, number * size, (number + 1) * size)

    if isinstance(network, LSTMNetwork):
        total = graph.add("Add", from_inputs, from_units)
        enters, keeps, leaves = (graph.add("Sigmoid", gate(total, number)) for number in (0, 1, 3))
        candidates = graph.add("Tanh", gate(total, 2))
        cells = graph.add("Mul", keeps, graph.columns("state", size, 2 * size))
        cells = graph.add("Add", cells, graph.add("Mul", enters, candidates))
        units = graph.add("Mul", leaves, graph.add("Tanh", cells))
        state = [units, cells]
    elif network.more:  # GRU
        resets, updates = (
            graph.add("Sigmoid", graph.add("Add", gate(from_inputs, number), gate(from_units, number)))
            for number in (0, 1)
        )
        values = graph.add("Mul", resets, graph.add("Add", gate(from_units, 2), network.more[0][0]))
        candidates = graph.add("Tanh", graph.add("Add", gate(from_inputs, 2), values))
        kept = graph.add("Mul", updates, units)
        units = graph.add("Add", kept, graph.add("Mul", graph.add("Sub", np.float32(1), updates), candidates))
        state = [units]
    else:
        units = graph.add("Tanh", graph.add("Add", from_inputs, from_units))
        state = [units]
    return _add_dense(graph, units, network.out_weights, network.out_biases), state


def _add_convolutions(graph: Graph, network: ImageNetwork, activation: str, x: str) -> str:
    """Add the layers of a policy for images.  Returns its outputs."""
    kind, attributes = _ACTIVATIONS[activation]
    height, width, channels = network.images[0]
    x = graph.add("Div", graph.add("Reshape", x, [-1, channels, height, width]), np.float32(255))
    for number, (weights, shifts, *_) in enumerate(network.layers):
        units = weights.shape[2]
        shape: tuple[int, ...] = (units,)
        if number < len(network.convolutions):
            _, size, stride = network.convolutions[number]
            kernel = weights[0].reshape(size, size, -1, units).transpose(3, 2, 0, 1)
            x = graph.add("Conv", x, kernel, kernel_shape=[size, size], strides=[stride, stride])
            shape = (1, units, 1, 1)
        else:
            x = _add_dense(graph, _as_rows(graph, x) if number == len(network.convolutions) else x, weights)
        if network.has_factors:
            factors, offsets = network.states[number][0].reshape(2, -1, units)[:, 0]  # the same for all patches
            x = graph.add("Add", graph.add("Mul", x, factors.reshape(shape)), offsets.reshape(shape))
        else:
            x = graph.add("Add", x, shifts[0].reshape(shape))
        x = graph.add(kind, x, **attributes)
    if len(network.layers) == len(network.convolutions):
        x = _as_rows(graph, x)
    return _add_dense(graph, x, network.out_weights, network.out_biases)


def _as_rows(graph: Graph, x: str) -> str:
    """Images (n, channels, height, width) as rows (n, height * width * channels), the order of mpies."""
    return graph.add("Flatten", graph.add("Transpose", x, perm=[0, 2, 3, 1]), axis=1)


def _add_heads(graph: Graph, policy: ExportedPolicy, outputs: str) -> int:
    """Add what makes the action of outputs (n, width).  Returns the numbers of an action."""
    parts, start, numbers = [], 0, 0
    for name, data in policy.heads:
        width = int(data) if data.ndim == 0 else data.size if name == "bins" else data.shape[1]
        x = outputs if len(policy.heads) == 1 else graph.columns(outputs, start, start + width)
        start += width
        count = {"choice": 1, "bins": len(data) if data.ndim else 0}.get(name, width)
        numbers += count
        if name == "choice":
            x = graph.add("ArgMax", x, axis=1, keepdims=int(not policy.is_index))
            x = x if policy.is_index else graph.add("Cast", x, to=_FLOAT)
        elif name == "signs":
            x = graph.add("Cast", graph.add("Greater", x, np.float32(0)), to=_FLOAT)
        elif name == "bins":
            index = graph.add("ArgMax", graph.add("Reshape", x, [-1, *data.shape]), axis=2, keepdims=0)
            place = graph.add("Add", index, np.arange(len(data)) * data.shape[1])
            x = graph.add("Gather", np.asarray(data, np.float32).ravel(), place)
        elif name == "clip":
            x = graph.add("Min", graph.add("Max", x, data[0]), data[1])
        else:
            x = graph.add("Tanh", x)
            if name == "floor":
                x = graph.add("Floor", graph.add("Mul", x, np.float32(FLOOR_STEPS)))
                x = graph.add("Div", x, np.float32(FLOOR_STEPS))
            x = graph.add("Mul", x, (data[1] - data[0]) / 2)
            x = graph.add("Add", x, (data[0] + data[1]) / 2)
        parts.append(x)
    if len(parts) == 1:
        graph.add("Identity", parts[0], output="action")
    else:
        graph.add("Concat", *parts, output="action", axis=1)
    return numbers
