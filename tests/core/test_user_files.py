"""A file named in environment.id imports its neighbours."""

import sys

import pytest

from mpies import envs
from mpies.envs import EnvironmentProblem, make_env
from mpies.envs.custom_env import find
from tests.envs.episodes import play

WORLD = """
import gymnasium, numpy
from gymnasium import spaces
import {neighbour}
from {neighbour} import REWARD

class World(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (1,), numpy.float32)
    action_space = spaces.Discrete(2)
    def __init__(self):
        from later import BONUS
        self.reward = REWARD + BONUS
    def reset(self, seed=None, options=None):
        return numpy.zeros(1, numpy.float32), {{}}
    def step(self, action):
        return numpy.zeros(1, numpy.float32), self.reward, True, False, {{}}
"""


def write_world(folder, reward, neighbour="physics"):
    """A file that imports a module beside it, and another one in its constructor."""
    (folder / "constants").mkdir(parents=True)
    (folder / "world.py").write_text(WORLD.format(neighbour=neighbour))
    (folder / f"{neighbour}.py").write_text("from constants import values\nREWARD = values.REWARD\n")
    (folder / "constants" / "__init__.py").write_text("from . import values\n")
    (folder / "constants" / "values.py").write_text(f"REWARD = {reward}\n")
    (folder / "later.py").write_text("from constants import values\nBONUS = values.REWARD * 100\n")
    return f"{folder}/world.py:World"


def reward_of(environment_id):
    (episode,) = play(make_env(environment_id), [1], action=0)
    return episode.rewards[0]


def test_neighbours_of_the_same_name_are_told_apart_and_nothing_is_left_behind(tmp_path):
    path, modules = list(sys.path), set(sys.modules)
    ids = [write_world(tmp_path / f"world{number}", number) for number in (1, 2)]
    assert [reward_of(environment_id) for environment_id in (*ids, *ids)] == [101, 202, 101, 202]
    assert sys.path == path
    assert not {"physics", "constants", "constants.values", "later"} & set(sys.modules)
    left = {name for name in set(sys.modules) - modules if str(tmp_path) in name}
    assert left == {f"_custom_{tmp_path}/world{number}/world.py" for number in (1, 2)}


@pytest.mark.parametrize("name", ["World", "Small", "make"])
def test_a_constructor_of_a_neighbour_imports_from_the_folder_as_well(name, tmp_path):
    write_world(tmp_path / "world", 6)
    other = "import functools\nfrom world import World\nSmall = functools.partial(World)\ndef make(): return World()\n"
    (tmp_path / "world" / "other.py").write_text(other)
    assert reward_of(f"{tmp_path}/world/other.py:{name}") == 606


def test_two_files_of_a_folder_share_their_neighbours(tmp_path):
    (tmp_path / "common.py").write_text("class Thing: pass\n")
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text("from common import Thing\ndef kind(): return Thing\n")
    assert find(f"{tmp_path}/one.py:kind")() is find(f"{tmp_path}/two.py:kind")()


@pytest.mark.parametrize("name", ["solvers", "envs", "base", "build_errors"])
def test_names_of_modules_of_mpies_are_free_for_neighbours(name, tmp_path):
    before = envs.base, envs.build_errors
    assert reward_of(write_world(tmp_path / "world", 3, neighbour=name)) == 303
    assert (envs.base, envs.build_errors) == before and hasattr(envs.build_errors, "suggest_ids")


def test_a_neighbour_that_failed_is_imported_again_once_it_is_mended(tmp_path):
    environment_id = write_world(tmp_path / "world", 4)
    (tmp_path / "world" / "constants" / "values.py").write_text("raise OSError('no licence')\n")
    with pytest.raises(EnvironmentProblem, match=r"world.py cannot be imported \(OSError: no licence\)"):
        make_env(environment_id)
    (tmp_path / "world" / "constants" / "values.py").write_text("REWARD = 40  # another length\n")
    assert reward_of(environment_id) == 4040
