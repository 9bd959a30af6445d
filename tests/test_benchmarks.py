"""The scripts in benchmarks/ fit the program: their imports exist, and they understand what it writes."""

import ast
import importlib
import json
import subprocess
import sys

import pytest

from tests.support import HOME, mpiexec_or_skip

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


def test_faults_reads_from_the_log_how_long_a_repair_took(tmp_path):
    mpiexec_or_skip(has_ulfm=True)
    file = tmp_path / "faults.json"
    command = [sys.executable, HOME / "benchmarks" / "faults.py", "rank", "--trials", "1", "--json", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(file.read_text())["repair_max_s"] > 0
