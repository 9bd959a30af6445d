"""What a rank imports: each module costs every rank processor time before the first generation."""

import json
import os
import subprocess
import sys

from tests.support import HOME

NOTE = """
import atexit, json, os, sys

def note():
    if "OMPI_COMM_WORLD_RANK" in os.environ and "mpies" in sys.modules:
        with open(os.path.join(os.environ["NOTES"], os.environ["OMPI_COMM_WORLD_RANK"]), "w") as file:
            json.dump(sorted(sys.modules), file)

atexit.register(note)
"""
SHOWN = {"rich", "matplotlib", "IPython", "html", "mpies.report.page"}  # what people look at
WRITTEN = {"h5py", "tensorboard", "wandb", "mpies.solvers.check"}
OF_OTHERS = {"xml.etree", "cma", "nevergrad", "torch", "mpies.launch.supervisor"}  # backends and solvers not in use


def test_a_rank_that_plays_imports_nothing_that_others_show_or_write(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(NOTE)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(HOME)]), "NOTES": str(tmp_path)}
    command = [sys.executable, "-m", "mpies", "train", "cartpole", "--ranks", "2", "stop.generations=1"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    root, player = (set(json.loads((tmp_path / rank).read_text())) for rank in "01")
    assert "mpies.training.trainer" in player and "h5py" in root
    assert player & (SHOWN | WRITTEN | OF_OTHERS) == set()
    assert root & (SHOWN | OF_OTHERS) == set()
