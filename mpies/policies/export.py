"""A trained policy as a file for other programs: .npz, a Python file that needs NumPy alone, or ONNX."""

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.core.errors import ConfigError
from mpies.core.text import unbroken
from mpies.envs.tasks import shown_numbers
from mpies.policies import exported
from mpies.policies.base import Architecture
from mpies.policies.convolutional import Convolutional
from mpies.policies.exported import ExportedPolicy
from mpies.policies.heads import CompositeHead
from mpies.policies.mlp import MLP
from mpies.policies.onnx_graph import Arrays, as_onnx

ENDINGS = (".npz", ".py", ".onnx")


def export_policy(policy: Architecture, saved: Arrays, hide: Sequence[int], about: str, ending: str) -> bytes:
    """The content of a file with a trained policy, in the format of its ending.

    saved: `parameters` (d,) and `normalization` (2, o), as a policy file has them.
    hide: numbers of the observation that the policy does not see (environment.hide).
    about: a description, which the file contains.
    ending: one of ENDINGS.  Raises ConfigError for a policy that these formats cannot hold.
    """
    kind = type(policy.options).model_fields["kind"].default
    require_exportable(kind)
    arrays = {"kind": np.array(kind)} | policy_arrays(policy, saved)
    shown = shown_numbers(policy.interface.observation_size, hide)
    if shown is not None:
        arrays |= {"shown": shown, "observation_size": np.array(len(shown) + len(set(hide)))}
    arrays["about"] = np.array(about)
    if ending == ".onnx":
        return as_onnx(ExportedPolicy(arrays), arrays)
    return as_npz(arrays) if ending == ".npz" else as_python(arrays, about)


def require_exportable(kind: str) -> None:
    """Raise ConfigError where the formats cannot hold a policy of this kind, which is code of the user's."""
    if kind not in (*exported.NETWORKS, "none"):
        raise ConfigError(
            f"policy.kind {kind} cannot be exported, since its network is code of your own; load its parameters into "
            "your module (docs/pictures.md, Exports)"
        )


def as_npz(arrays: Arrays) -> bytes:
    """The arrays as the content of an .npz file."""
    out = io.BytesIO()
    named: dict[str, Any] = dict(arrays)  # the stub takes the names for options of its own
    np.savez_compressed(out, **named)
    return out.getvalue()


def as_python(arrays: Arrays, about: str) -> bytes:
    """mpies/policies/exported.py as the content of a Python file, with the arrays at its end."""
    source = Path(exported.__file__).read_text()
    data = base64.b85encode(as_npz(arrays)).decode()  # has neither quotes nor backslashes
    lines = "".join(f'\n    "{data[start : start + 110]}"' for start in range(0, len(data), 110))
    # Not in the first two lines, where a comment may name the encoding of the file.
    return f"{source}\n\n# {unbroken(about, 'environment.id')}\nDATA = ({lines}\n)\n".encode()


def policy_arrays(policy: Architecture, saved: Arrays) -> Arrays:
    """The arrays that ExportedPolicy takes, but for `kind` and `about`.  saved: those of the policy's file."""
    options = policy.options
    heads = policy.head.heads if isinstance(policy.head, CompositeHead) else [policy.head]
    shapes = [(*block.shape, 0)[:2] for block in policy.blocks[: policy.network_blocks]]
    arrays: Arrays = {
        "parameters": saved["parameters"],
        "shapes": np.array(shapes),
        "observation_size": np.array(policy.interface.observation_size),
        "observation_clip": np.array(options.observation_clip, np.float32),
        "heads": np.array([part.kind for part in heads]),
        "is_composite": np.array(isinstance(policy.head, CompositeHead)),
        **{f"head_{number}": part.data for number, part in enumerate(heads)},
    }
    if options.normalize_observations:
        arrays["normalization"] = saved["normalization"]
    if options.time_input is not None:
        arrays["time_input"] = np.array(options.time_input, np.float64)
    if isinstance(policy, MLP):
        arrays |= {"activation": np.array(policy.options.activation), "bias": np.array(policy.options.bias)}
    elif isinstance(policy, Convolutional):
        arrays |= _image_arrays(policy, saved["parameters"])
    return arrays


def _image_arrays(policy: Convolutional, parameters: npt.NDArray[np.float32]) -> Arrays:
    """The sizes of the layers, and the factors and offsets that normalise them.  parameters: (d,)."""
    stack = exported.aligned_stack(1, policy.size)
    stack[:] = parameters
    network = policy.network(policy.views(stack)[: policy.network_blocks])
    network.begin(0)
    return {
        "activation": np.array(policy.options.activation),
        "convolutions": np.array(policy.options.convolutions),
        "images": np.array(policy.images),
        "patches": np.array(policy.patches),
        "has_factors": np.array(policy.options.batch_normalization),
        **{f"factors_{number}": state[0] for number, state in enumerate(network.states)},
    }
