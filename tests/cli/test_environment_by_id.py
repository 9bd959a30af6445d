"""Commands take the id of an environment in place of a config that names it and nothing else."""

import pytest

from mpies.config.loading import load_config
from mpies.config.recipes import find_config
from mpies.core.errors import ConfigError
from tests.support import assert_refused, invoke


@pytest.mark.parametrize("name", ["LunarLander-v3", "ALE/Pong-v5", "gym:MinitaurBulletEnv-v0", "own.py:Corridor"])
def test_an_id_is_a_config_of_one_line(name):
    assert load_config(name) == load_config(name, [f"environment.id={name}"])
    assert load_config(name, ["seed=3"]).environment.id == name


def test_a_file_of_this_name_comes_first(here):
    (here / "CartPole-v1").write_text("environment: {id: Acrobot-v1}")
    assert load_config("CartPole-v1").environment.id == "Acrobot-v1"


def test_a_path_in_a_folder_that_is_there_is_no_id(here):
    (here / "experiments").mkdir()
    with pytest.raises(ConfigError, match="experiments/second-v2: cannot be read"):
        find_config("experiments/second-v2")


def test_an_unknown_id_is_answered_with_the_nearest():
    assert_refused(invoke("check", "LunarLandr-v3"), "'LunarLandr-v3' is not known", "LunarLander-v3")
