"""docs/notebook.ipynb runs and prints what it shows; docs/python.md names what is there."""

import inspect
import re

import pytest

import mpies
from mpies.policies.keys import PolicyOptions
from tests.support import HOME

NOTEBOOK = HOME / "docs" / "notebook.ipynb"


def printed(cell):
    """What a cell has printed."""
    return "".join(output["text"] for output in cell.get("outputs", []) if output["output_type"] == "stream")


def test_the_notebook_runs_and_prints_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.delenv("MPLBACKEND", raising=False)  # pybullet's environments set it
    for package in ("nbclient", "ipykernel", "pandas", "matplotlib"):
        pytest.importorskip(package, reason=f"{package} is an extra")
    import nbclient
    import nbformat
    from jupyter_client.manager import AsyncKernelManager

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    stored = [printed(cell) for cell in notebook.cells]
    assert sum(map(bool, stored)) > 3
    kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=str(tmp_path / "kernel"))
    client = nbclient.NotebookClient(
        notebook, km=kernel, timeout=120, resources={"metadata": {"path": str(tmp_path)}}, store_widget_state=False
    )
    client.execute(cleanup_kc=True)  # a manager that it was handed is else left with its sockets and its kernel
    assert [printed(cell) for cell in notebook.cells] == stored
    shown = [kind for cell in notebook.cells for output in cell.get("outputs", []) for kind in output.get("data", {})]
    assert "image/png" in shown and "text/html" in shown


def names_of(text, word):
    """The attributes of `word` that a page names."""
    return set(re.findall(rf"\b{word}\.([a-z_A-Z]+)", text)) - {"yaml", "h5", "ipynb", "onnx"}


def test_the_page_names_what_is_there_and_all_that_is_exported():
    text = (HOME / "docs" / "python.md").read_text()
    named = names_of(text, "mpies")
    assert {"train", "load", "runs", "Policy", "minimize", "maximize", "AskTell"} <= named
    assert {name for name in named - {"errors"} if not hasattr(mpies, name)} == set()
    for word, kind in (("run", mpies.Run), ("policy", mpies.Policy)):
        named = names_of(text, word)
        fields = set(inspect.get_annotations(kind)) | set(re.findall(r"self\.(\w+)", inspect.getsource(kind.__init__)))
        assert len(named) > 5
        assert {name for name in named if not hasattr(kind, name)} - fields - PolicyOptions.model_fields.keys() == set()
    missing = {name for name in mpies.__all__ if f"mpies.{name}" not in text and not name.endswith("Error")}
    assert missing == set()
