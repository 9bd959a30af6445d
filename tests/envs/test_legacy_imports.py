"""pybullet's environments where setuptools is absent or too new: an episode is the same as with it."""

import subprocess
import sys

import pytest

from mpies.envs.legacy_imports import parse_version
from tests.support import HOME

pytest.importorskip("pybullet", reason="pybullet is not installed")

# Prints a digest of an episode, and whether pkg_resources is there afterwards.  argv: the id, and `hide` for a Python
# that finds no setuptools.
SCRIPT = """
import hashlib, importlib.util, sys
from importlib.machinery import PathFinder

if sys.argv[2] == "hide":
    find_spec = PathFinder.find_spec
    hidden = "setuptools", "pkg_resources", "_distutils_hack"
    PathFinder.find_spec = lambda name, *rest: None if name.partition(".")[0] in hidden else find_spec(name, *rest)

from mpies.envs import make_env
from tests.envs.episodes import play

bits = play(make_env(sys.argv[1]), [3], steps=20)[0].bits
print(hashlib.sha256(bits).hexdigest(), importlib.util.find_spec("pkg_resources") is not None)
"""


def episode(environment_id, how):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, environment_id, how], cwd=HOME, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize("environment_id", ["AntBulletEnv-v0", "MinitaurBulletEnv-v0"])
def test_an_episode_without_setuptools_is_the_same(environment_id):
    with_setuptools, _ = episode(environment_id, "")
    without, is_left = episode(environment_id, "hide")
    assert (without, is_left) == (with_setuptools, "False")


def test_versions_compare_as_numbers():
    assert parse_version("0.9.6") < parse_version("0.26.2") == parse_version("0.26.2") < parse_version("1.0")
