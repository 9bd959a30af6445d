"""The examples run, and print what they promise."""

import os
import subprocess
import sys

import pytest

from mpies.comm import mpiexec
from tests.support import HOME, mpiexec_or_skip

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
def test_an_example_runs(name, tmp_path):
    if name == "many_ranks":
        mpiexec_or_skip()
    if name == "mlflow_callback":
        pytest.importorskip("mlflow", reason="mlflow is not installed")
    script = HOME / "examples" / f"{name}.py"
    if name == "train_and_read":  # the policy need not be a good one
        script = tmp_path / script.name
        script.write_text((HOME / "examples" / script.name).read_text().replace("generations=40", "generations=5"))
    command = [sys.executable, script]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | mpiexec.environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert EXAMPLES[name] in done.stdout.splitlines()[-1]
    if name == "many_ranks":
        assert "DIFFERENT" not in done.stdout
