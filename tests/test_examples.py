"""The scripts in examples/ run and print what they promise, and those in benchmarks/ fit the program."""

import ast
import importlib
import re
import runpy
import sys
from types import SimpleNamespace

import pytest

from mpies.training.evaluation.recovery import go_on_without_the_lost
from tests.support import HOME, load_script, mpiexec_or_skip

# Script to a part of its last line.
EXAMPLES = {
    "function": "SNES: ",
    "custom_environment": "mean return of the members: -",
    "robots/quadruped": "3 generations",
    "custom_solver": " generations: ",
    "train_and_read": "as recorded and as played now: ",
    "sweep": "_seed=2 finished",
    "export": "actions of both: 0 0",
    "many_ranks": " the same",
    "mlflow_callback": "MLflow has 1 run;",
}


def test_every_example_is_run_and_listed():
    scripts = {path.stem for path in (HOME / "examples").glob("*.py")} | {"robots/quadruped"}
    assert scripts == set(EXAMPLES)
    text = (HOME / "examples/README.md").read_text()
    assert not [name for name in scripts if f"({name}.py)" not in text]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name, here, monkeypatch, capsys):
    if name == "many_ranks":
        mpiexec_or_skip()
    if name == "mlflow_callback":
        pytest.importorskip("mlflow", reason="mlflow is not installed")
    script = HOME / "examples" / f"{name}.py"
    if name == "train_and_read":  # the policy need not be a good one
        script = here / script.name
        script.write_text((HOME / "examples" / script.name).read_text().replace("generations=40", "generations=5"))
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.setattr(sys, "path", [str(script.parent), *sys.path])  # as Python does
    runpy.run_path(str(script), run_name="__main__")
    stdout = capsys.readouterr().out
    assert EXAMPLES[name] in stdout.splitlines()[-1] and "DIFFERENT" not in stdout


@pytest.mark.parametrize("script", sorted((HOME / "benchmarks").glob("*.py")), ids=lambda path: path.stem)
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
