"""The scripts in benchmarks/ fit the program: their imports exist, and they understand what it writes."""

import ast
import importlib
import re
from types import SimpleNamespace

import pytest

from mpies.training.evaluation.recovery import go_on_without_the_lost
from tests.support import HOME, load_script

SCRIPTS = sorted((HOME / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_what_a_benchmark_imports_from_mpies_exists(script):
    """Also what it imports within a function, which its start does not show."""
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "mpies":
            module = importlib.import_module(node.module)
            for name in (alias.name for alias in node.names):
                if not hasattr(module, name):
                    importlib.import_module(f"{node.module}.{name}")


def test_faults_reads_from_the_log_how_long_a_repair_took(caplog, monkeypatch):
    monkeypatch.syspath_prepend(HOME / "benchmarks")
    go_on_without_the_lost(SimpleNamespace(repair=lambda: "process 7 on b", is_root=True, size=3))
    (seconds,) = re.findall(load_script("benchmarks/faults.py").REPAIRED, caplog.text)
    assert 0 <= float(seconds) < 1
