"""Write a run's best policy for other programs: as .npz, as a Python file that needs NumPy alone, or as ONNX.

EXPORTERS has an entry for each kind of policy that can be exported.
"""

import base64
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.envs.base import Discrete
from mpies.errors import ConfigError
from mpies.policies import exported_mlp
from mpies.policies.mlp import MLP, MLPOptions
from mpies.runs.files import write_atomically
from mpies.runs.hdf5 import Arrays
from mpies.runs.policy_file import load_policy
from mpies.training.task import Task

ENDINGS = (".npz", ".py", ".onnx")


@dataclass(frozen=True)
class Node:
    """An operation of an ONNX graph.  kind: its name in ONNX.  inputs, outputs: names of values."""

    kind: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]


@dataclass
class Graph:
    """An ONNX graph whose input is called observation and whose output is called action.

    initializers: names to constant inputs of nodes.  width: a, numbers of an action; None for a discrete action.
    """

    nodes: list[Node] = field(default_factory=list)
    initializers: Arrays = field(default_factory=dict)
    width: int | None = None

    def append(self, kind: str, *constants: npt.ArrayLike, **attributes: Any) -> None:
        """Add a node that takes the last node's output, and constants as further inputs."""
        place = len(self.nodes)
        names = [f"{kind.lower()}_{place}_{number}" for number in range(len(constants))]
        self.initializers.update(zip(names, (np.asarray(value, np.float32) for value in constants), strict=True))
        before = self.nodes[-1].outputs[0] if self.nodes else "observation"
        self.nodes.append(Node(kind, [before, *names], [f"value_{place}"], attributes))

    def finish(self) -> None:
        """Call the last node's output action."""
        self.nodes[-1].outputs[0] = "action"


@dataclass(frozen=True)
class Exporter:
    """How a kind of policy is exported.

    arrays: function of (the policy, its arrays) that returns the arrays of the export.
    module: computes actions from them; its source is the exported Python file.
    graph: function of these arrays that returns the ONNX graph.
    """

    arrays: Callable[[Any, Arrays], Arrays]
    module: ModuleType
    graph: Callable[[Arrays], Graph]


def export_policy(path: str | Path, to: str | Path) -> str:
    """Write the best policy of a run, or a policy file, to `to`, in the format of its ending.

    Returns a description of what was exported.  Raises ConfigError or RunError.
    """
    to = Path(to)
    if to.suffix not in ENDINGS:
        raise ConfigError(f"--to must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}, but is {str(to)!r}")
    saved = load_policy(path)
    kind = saved.config.policy.kind
    exporter = EXPORTERS.get(kind)
    if exporter is None:
        raise ConfigError(f"{saved.path}: policy.kind {kind} has no export; needed: {' or '.join(EXPORTERS)}")
    arrays = exporter.arrays(Task(saved.config).policy, saved.arrays)
    size = len(saved.arrays["parameters"])
    about = f"{saved.config.environment.id}, generation {saved.generation}, {size} parameters"
    arrays["about"] = np.array(about)
    if to.suffix == ".onnx":
        content = as_onnx(exporter, arrays, about)
    else:
        content = as_npz(arrays) if to.suffix == ".npz" else as_python(exporter, arrays, about)
    try:
        write_atomically(to, content)
    except OSError as error:
        raise ConfigError(f"{to}: cannot be written ({error.strerror}); give another --to") from None
    return about


def as_npz(arrays: Arrays) -> bytes:
    """The arrays as the content of an .npz file."""
    out = io.BytesIO()
    named: dict[str, Any] = dict(arrays)  # the stub takes the names for options of its own
    np.savez_compressed(out, **named)
    return out.getvalue()


def as_python(exporter: Exporter, arrays: Arrays, about: str) -> bytes:
    """The exporter's module as the content of a Python file, with the arrays at its end."""
    assert exporter.module.__file__
    source = Path(exporter.module.__file__).read_text()
    data = base64.b85encode(as_npz(arrays)).decode()  # has neither quotes nor backslashes
    lines = "".join(f'\n    "{data[start : start + 110]}"' for start in range(0, len(data), 110))
    return f"# {about}\n{source}\n\nDATA = ({lines}\n)\n".encode()


def as_onnx(exporter: Exporter, arrays: Arrays, about: str) -> bytes:
    """An ONNX model from float32 observations (n, o) to actions: int64 (n,) or float32 (n, a)."""
    try:
        import onnx
    except ImportError:
        raise ConfigError('an .onnx needs a package that is not installed: pip install "mpies[onnx]"') from None
    graph, types = exporter.graph(arrays), onnx.TensorProto
    size, width = int(arrays["widths"][0]), graph.width
    observation = onnx.helper.make_tensor_value_info("observation", types.FLOAT, ["n", size])
    shape: list[str | int | None] = ["n"] if width is None else ["n", width]
    action = onnx.helper.make_tensor_value_info("action", types.INT64 if width is None else types.FLOAT, shape)
    initializers = graph.initializers.items()
    onnx_graph = onnx.helper.make_graph(
        [onnx.helper.make_node(node.kind, node.inputs, node.outputs, **node.attributes) for node in graph.nodes],
        "policy",
        [observation],
        [action],
        [onnx.numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in initializers],
        doc_string=about,
    )
    # Runtimes read opset 17 and format 8 since 2022.
    model = onnx.helper.make_model(onnx_graph, opset_imports=[onnx.helper.make_opsetid("", 17)], producer_name="mpies")
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


def mlp_arrays(policy: MLP, saved: Arrays) -> Arrays:
    """The arrays that exported_mlp.Policy takes.  Raises ConfigError for options that it does not know."""
    options = policy.options
    assert isinstance(options, MLPOptions)
    for name in ("bins", "time_input"):
        if getattr(options, name) is not None:
            raise ConfigError(f"a policy with policy.{name} has no export; evaluate and play are for it")
    arrays = {
        "parameters": saved["parameters"],
        "widths": np.array([policy.inputs, *options.hidden, policy.outputs]),
        "activation": np.array(options.activation),
        "output": np.array(options.output),
        "bias": np.array(options.bias),
        "observation_clip": np.array(options.observation_clip, np.float32),
    }
    if options.normalize_observations:
        arrays["normalization"] = saved["normalization"]
    action = policy.interface.action
    if not isinstance(action, Discrete):
        arrays["bounds"] = np.stack([action.low, action.high])
    return arrays


# Activations to the operation in ONNX and its attributes.
_ONNX_ACTIVATIONS: dict[str, tuple[str, dict[str, float]]] = {
    "tanh": ("Tanh", {}),
    "relu": ("Relu", {}),
    "lrelu": ("LeakyRelu", {"alpha": 0.01}),
    "elu": ("Elu", {}),
    "linear": ("Identity", {}),
}


def mlp_graph(arrays: Arrays) -> Graph:
    """The ONNX graph of the arrays of `mlp_arrays`."""
    graph = Graph()
    if "normalization" in arrays:
        graph.append("Sub", arrays["normalization"][0])
        graph.append("Div", arrays["normalization"][1])
        graph.append("Clip", -arrays["observation_clip"], arrays["observation_clip"])
    activation, attributes = _ONNX_ACTIVATIONS[str(arrays["activation"])]
    for number, (weights, bias) in enumerate(exported_mlp.Policy(arrays).layers):
        if number:
            graph.append(activation, **attributes)
        graph.append("MatMul", weights)
        if bias is not None:
            graph.append("Add", bias)
    if "bounds" in arrays:
        low, high = arrays["bounds"]
        graph.width = len(low)
        if str(arrays["output"]) == "clip":
            graph.append("Max", low)
            graph.append("Min", high)
        else:
            graph.append("Tanh")
            graph.append("Mul", (high - low) / 2)
            graph.append("Add", (low + high) / 2)
    else:
        graph.append("ArgMax", axis=1, keepdims=0)
    graph.finish()
    return graph


EXPORTERS = {"mlp": Exporter(mlp_arrays, exported_mlp, mlp_graph)}
