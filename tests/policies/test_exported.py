"""The arithmetic that exported policies and the compiled perceptrons share; test_export.py has the rest."""

import ast
from pathlib import Path

import numpy as np
import pytest

from mpies.policies import exported
from mpies.policies.exported import dense, tanh


def test_it_needs_only_numpy():
    tree = ast.parse(Path(exported.__file__).read_text())
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"base64", "io", "math", "collections.abc", "numpy"}


def test_networks_use_nothing_of_numpy_that_differs_between_processors():
    """BLAS and NumPy's own exp and tanh do.  What makes actions may use np.tanh, for `output: scale`."""
    tree = ast.parse(Path(exported.__file__).read_text())
    definitions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    found = {
        (definition.name, node.attr)
        for definition in definitions
        for node in ast.walk(definition)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "np"
    }
    assert ("LSTMNetwork", "split") in found and ("dense", "zeros") in found  # it finds what is used
    assert not {name for name in found if name[1] in ("matmul", "dot", "einsum", "exp", "tanh", "sum", "mean")}
    assert not any(isinstance(node, ast.MatMult) for node in ast.walk(tree))


def test_the_hyperbolic_tangent_is_close_to_the_true_one():
    x = np.concatenate([np.linspace(-12, 12, 1_000_001), np.logspace(-30, 1, 10_001)]).astype(np.float32)
    error = np.abs(tanh(x) - np.tanh(x.astype(np.float64)))
    assert error.max() < 4.5e-7
    assert (error[x != 0] / np.abs(np.tanh(x[x != 0].astype(np.float64)))).max() < 8e-7
    assert tanh(np.array([np.inf, -np.inf], np.float32)).tolist() == pytest.approx([1, -1], abs=2e-7)
    assert np.isnan(tanh(np.array([np.nan], np.float32)))


def test_a_layer_adds_its_products_to_the_bias_in_the_order_of_the_inputs():
    x = np.array([[1, 1, 1]], np.float32)
    weights = np.array([[[1e8], [1], [-1e8]]], np.float32)
    assert dense(x, weights).tolist() == [[0]]  # 1e8 + 1 is 1e8 in float32
    assert dense(x[:, [0, 2, 1]], weights[:, [0, 2, 1]]).tolist() == [[1]]
    assert dense(x[:, :2], weights[:, :2], np.array([[-1e8]], np.float32)).tolist() == [[1]]  # the bias comes first
