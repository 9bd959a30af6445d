"""A run's best policy for other programs: an .npz, a Python file that needs NumPy alone, or ONNX.

EXPORTS has, for each kind of policy, what an export is made of; a new kind adds its own.
"""

from mpies.runs.files import write_atomically
import base64
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpies.envs.base import Discrete
from mpies.policies import exported_mlp
from mpies.errors import ConfigError
from mpies.runs.policy_file import find_policy, load_policy
from mpies.training.task import Task

ENDINGS = (".npz", ".py", ".onnx")


@dataclass(frozen=True)
class Export:
    """How a kind of policy leaves.

    arrays: function of (policy, its arrays) that returns names to arrays.  module: whose source acts on them.
    graph: function of those arrays that returns ONNX nodes, names to initializers, and the width of the output,
    None for a discrete action; the input is called observation and the output action.
    """

    arrays: object
    module: object
    graph: object


def export_policy(path, to):
    """Write the best policy of a run (or a policy file) to `to`, in the format of its ending.

    Returns what was exported, in words.
    """
    to = Path(to)
    if to.suffix not in ENDINGS:
        raise ConfigError(f"--to must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}, but is {str(to)!r}")
    config, saved, attributes = load_policy(path)
    export = EXPORTS.get(config.policy.kind)
    if export is None:
        raise ConfigError(
            f"{find_policy(path)}: policy.kind {config.policy.kind} has no export; needed: {' or '.join(EXPORTS)}"
        )
    arrays = export.arrays(Task(config).policy, saved)
    about = (
        f"{config.environment.id}, generation {int(attributes['generation'])}, {len(saved['parameters'])} parameters"
    )
    arrays["about"] = np.array(about)
    if to.suffix == ".onnx":
        content = as_onnx(export, arrays, about)
    else:
        content = as_npz(arrays) if to.suffix == ".npz" else as_python(export, arrays, about)
    try:
        write_atomically(to, content)
    except OSError as error:
        raise ConfigError(f"{to}: cannot be written ({error.strerror}); give another --to") from None
    return about


def as_npz(arrays):
    """The arrays as the bytes of an .npz."""
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def as_python(export, arrays, about):
    """The module that acts, with its arrays inside."""
    source = Path(export.module.__file__).read_text()
    data = base64.b85encode(as_npz(arrays)).decode()  # has neither quotes nor backslashes
    lines = "".join(f'\n    "{data[start : start + 110]}"' for start in range(0, len(data), 110))
    return f"# {about}\n{source}\n\nDATA = ({lines}\n)\n".encode()


def as_onnx(export, arrays, about):
    """An ONNX model from float32 observations (n, o) to actions: int64 (n,) or float32 (n, a)."""
    try:
        import onnx
    except ImportError:
        raise ConfigError('an .onnx needs a package that is not installed: pip install "mpies[onnx]"') from None
    nodes, initializers, width = export.graph(arrays)
    kinds = onnx.TensorProto
    size = int(arrays["widths"][0])
    observation = onnx.helper.make_tensor_value_info("observation", kinds.FLOAT, ["n", size])
    shape = ["n"] if width is None else ["n", width]
    action = onnx.helper.make_tensor_value_info("action", kinds.INT64 if width is None else kinds.FLOAT, shape)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(kind, inputs, outputs, **options) for kind, inputs, outputs, options in nodes],
        "policy",
        [observation],
        [action],
        [onnx.numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in initializers.items()],
        doc_string=about,
    )
    # Opset 17 and format 8 are what runtimes from 2022 on read.
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], producer_name="mpies")
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def mlp_arrays(policy, saved):
    """What exported_mlp.Policy asks for."""
    options = policy.options
    for name in ("bins", "time_input"):
        if getattr(options, name) is not None:
            raise ConfigError(f"a policy with policy.{name} has no export; evaluate and play are for it")
    arrays = {
        "parameters": saved["parameters"],
        "widths": np.array([policy.layers[0][0], *(columns for _, columns in policy.layers)]),
        "activation": np.array(options.activation),
        "output": np.array(options.output),
        "bias": np.array(options.bias),
        "observation_clip": np.float32(options.observation_clip),
    }
    if options.normalize_observations:
        arrays["normalization"] = saved["normalization"]
    if not isinstance(policy.interface.action, Discrete):
        arrays["bounds"] = np.stack([policy.interface.action.low, policy.interface.action.high])
    return arrays


_ONNX_ACTIVATIONS = {
    "tanh": ("Tanh", {}),
    "relu": ("Relu", {}),
    "lrelu": ("LeakyRelu", {"alpha": 0.01}),
    "elu": ("Elu", {}),
    "linear": ("Identity", {}),
}


def mlp_graph(arrays):
    """As Export.graph."""
    nodes, constants, at = [], {}, "observation"

    def then(kind, *inputs, **options):
        """Add a node behind the last one, and the constants it takes."""
        nonlocal at
        names = [f"{kind.lower()}_{len(nodes)}_{number}" for number in range(len(inputs))]
        constants.update(zip(names, (np.asarray(value, np.float32) for value in inputs), strict=True))
        nodes.append((kind, [at, *names], [f"value_{len(nodes)}"], options))
        at = f"value_{len(nodes) - 1}"

    if "normalization" in arrays:
        then("Sub", arrays["normalization"][0])
        then("Div", arrays["normalization"][1])
        then("Clip", -arrays["observation_clip"], arrays["observation_clip"])
    activation, options = _ONNX_ACTIVATIONS[str(arrays["activation"])]
    for number, (weights, bias) in enumerate(exported_mlp.Policy(arrays).layers):
        if number:
            then(activation, **options)
        then("MatMul", weights)
        if bias is not None:
            then("Add", bias)
    width = None
    if "bounds" in arrays:
        low, high = arrays["bounds"]
        width = len(low)
        if str(arrays["output"]) == "clip":
            then("Max", low)
            then("Min", high)
        else:
            then("Tanh")
            then("Mul", (high - low) / 2)
            then("Add", (low + high) / 2)
    else:
        then("ArgMax", axis=1, keepdims=0)
    last = nodes[-1]
    nodes[-1] = (last[0], last[1], ["action"], last[3])
    return nodes, constants, width


EXPORTS = {"mlp": Export(mlp_arrays, exported_mlp, mlp_graph)}
