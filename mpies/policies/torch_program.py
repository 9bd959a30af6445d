"""A policy as a program that PyTorch or an ONNX runtime loads without mpies.  Importing this needs PyTorch."""

import contextlib
import io
import logging
import warnings
from typing import Any

import torch

from mpies.core.errors import ConfigError
from mpies.envs.tasks import shown_numbers
from mpies.policies.base import PolicyProblem
from mpies.policies.from_torch import Torch
from mpies.policies.to_torch import TorchPolicy
from mpies.runs.policy_file import PolicyFile
from mpies.training.task import Task


def as_program(saved: PolicyFile, to_onnx: bool) -> bytes:
    """What torch.export.save writes, or for `to_onnx` an ONNX model.

    It maps observations (n, o) float32 to actions as TorchPolicy does, with n = 1 for a module of the user's.  A
    recurrent one takes and returns its state too, which begins as zeros.  Raises ConfigError.
    """
    with contextlib.closing(Task(saved.config, saved.constants)) as task:
        policy = task.policy
    assert policy
    seen, hide = policy.interface.observation_size, saved.config.environment.hide
    normalization = saved.arrays["normalization"] if policy.options.normalize_observations else None
    shown = shown_numbers(seen, hide)
    try:
        module = TorchPolicy(policy, saved.arrays["parameters"], normalization, shown).eval()
    except PolicyProblem as error:
        raise ConfigError(f"{saved.path}: {error}") from None
    many = 1 if isinstance(policy, Torch) else 2
    inputs: tuple[Any, ...] = (torch.zeros(many, seen + len(set(hide))),)
    shapes: tuple[Any, ...] = ({},)
    if many > 1:
        batch = torch.export.Dim("n", min=1)
        shapes = ({0: batch},)
        if module.recurrent is not None:
            zeros = torch.zeros(1, many, module.recurrent.hidden_size)
            has_two = isinstance(module.recurrent, torch.nn.LSTM)
            inputs += ((zeros, zeros.clone()) if has_two else zeros,)
            shapes += (({1: batch}, {1: batch}) if has_two else {1: batch},)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of PyTorch's own parts
        try:
            program = torch.export.export(module, inputs, dynamic_shapes=shapes)
        except Exception as error:  # a user's module may do what cannot be traced
            reason = str(error).strip().splitlines()[0]
            raise ConfigError(f"{saved.path}: PyTorch cannot export this module ({reason})") from None
        return _as_onnx(program) if to_onnx else _as_file(program)


def _as_file(program: "torch.export.ExportedProgram") -> bytes:
    out = io.BytesIO()
    torch.export.save(program, out)
    return out.getvalue()


def _as_onnx(program: "torch.export.ExportedProgram") -> bytes:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        model = torch.onnx.export(program, dynamo=True, verbose=False)
    except ImportError:
        raise ConfigError('ONNX needs a package that is not installed: pip install "mpies[torch]"') from None
    assert model is not None
    content: bytes = model.model_proto.SerializeToString()
    return content
