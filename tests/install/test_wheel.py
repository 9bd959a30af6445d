"""The wheel and the source distribution in fresh environments, of every CPython that this machine has.

`make test-wheel` builds them and runs this; without it, these tests are skipped.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mpies.runs.formats.metrics import read_digests
from tests.support import HOME

pytestmark = [
    pytest.mark.wheel,
    pytest.mark.skipif("MPIES_TEST_WHEEL" not in os.environ, reason="there is no wheel: make test-wheel builds it"),
]
# Without EnvPool, which is half a gigabyte.
TRAIN = "train", "cartpole", "--ranks", 2, "--out", "run", "environment.id=gymnasium:CartPole-v1", "stop.generations=2"


def run(*command, folder, expected=0):
    """What a command prints, run in a folder away from this checkout."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MPIES_PICTURES")}
    words, pipes = [str(word) for word in command], {"capture_output": True, "text": True}
    done = subprocess.run(words, cwd=folder, env=environment, timeout=600, **pipes)
    assert done.returncode == expected, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def find_python(version):
    """The program of this CPython that can make environments; skips the test where there is none."""
    program = shutil.which(f"python{version}") or ""
    if not program or subprocess.run([program, "-c", "import venv, ensurepip"], capture_output=True).returncode:
        pytest.skip(f"there is no python{version} with venv")
    return program


def install(python, requirement, folder):
    """Install into a fresh environment.  Returns the folder of its programs."""
    run(python, "-m", "venv", folder / "venv", folder=folder)
    programs = folder / "venv/bin"
    pip_install = programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"
    run(*pip_install, "--constraint", HOME / "constraints.txt", requirement, folder=folder)
    return programs


def distribution(pattern):
    """The one file of dist/ of this name."""
    [path] = Path(HOME, os.environ["MPIES_TEST_WHEEL"]).glob(pattern)
    return path


@pytest.fixture(scope="module")
def digests(tmp_path_factory):
    """Of the run of TRAIN, with this checkout."""
    folder = tmp_path_factory.mktemp("checkout")
    run(sys.executable, "-m", "mpies", *TRAIN, folder=folder)
    return read_digests(folder / "run")


def check(programs, folder, digests):
    """Train two generations of a recipe on two ranks, and see what doctor says of the installation."""
    run(programs / "mpies", *TRAIN, folder=folder)
    assert read_digests(folder / "run") == digests and len(digests) == 2
    assert "ok    inner loop      compiled" in run(programs / "mpies", "doctor", folder=folder)
    listed = run(programs / "mpies", "recipes", folder=folder)
    assert "\nhopper-openai " in listed and "500.0" in listed
    for cluster, ending in (("slurm", "not run: sbatch runs/cartpole.sbatch\n"), ("pbs", "< runs/cartpole.pbs\n")):
        assert run(programs / "mpies", "launch", cluster, "cartpole", "--dry-run", folder=folder).endswith(ending)
    assert "requeue() {" in (folder / "runs/cartpole.sbatch").read_text()
    evaluated = run(programs / "mpies", "evaluate", "cartpole", "--episodes", 2, folder=folder)
    assert "mpies/results/cartpole/policy.h5, generation" in evaluated
    records = run(sys.executable, "-m", "mpies", "reproduce", "x", folder=folder, expected=2)
    assert "recorded recipes: ant, ant-ars, ant_bullet, " in records
    assert run(programs / "mpies", "reproduce", "x", folder=folder, expected=2) == records


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_the_wheel_trains_in_a_fresh_environment(version, digests, tmp_path):
    programs = install(find_python(version), f"{distribution('*.whl')}[mpi,classic-control]", tmp_path)
    check(programs, tmp_path, digests)
    if version == "3.11":
        run(programs / "python", "-m", "pip", "check", folder=tmp_path)
        probed = run(programs / "mpies", "probe", "AntBulletEnv-v0", "--episodes", 2, folder=tmp_path)
        assert "reproducible" in probed
    else:
        refused = run(programs / "mpies", "probe", "AntBulletEnv-v0", folder=tmp_path, expected=2)
        assert "pybullet, which has such environments, is not installed" in refused


def test_the_source_distribution_builds_and_trains(digests, tmp_path):
    programs = install(find_python("3.11"), f"{distribution('*.tar.gz')}[mpi,classic-control]", tmp_path)
    check(programs, tmp_path, digests)
