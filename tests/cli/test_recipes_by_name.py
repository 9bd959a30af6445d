"""Commands take a recipe's name or an environment's id for a path, and answer a mistyped one with the nearest."""

import pytest

from mpies.config.loading import load_config
from mpies.config.recipes import find_config, find_recipes
from mpies.core.errors import ConfigError
from mpies.runs.formats.metrics import read_metrics
from tests.support import HOME, invoke


def test_a_recipe_is_trained_by_name_into_the_run_of_its_path(run_mpies, tmp_path):
    assert run_mpies(0, "train", "cartpole", "stop.generations=1").code == 0
    assert len(read_metrics(tmp_path / "runs" / "cartpole_stop.generations=1")) == 1
    by_path = run_mpies(0, "train", HOME / "configs/cartpole.yaml", "stop.generations=1")
    assert by_path.code == 0 and "is complete" in by_path.stdout, by_path.stdout


def test_a_path_that_is_there_comes_before_a_recipe_and_an_id(here):
    for name in ("pong", "CartPole-v1"):
        (here / name).write_text("environment: {id: Acrobot-v1}")
        assert str(find_config(name)) == name and load_config(name).environment.id == "Acrobot-v1"
    (here / "swimmer").mkdir()  # a folder is no config
    assert find_config("swimmer") == find_recipes()["swimmer"]
    with pytest.raises(ConfigError, match="swimmer/second-v2: cannot be read"):
        find_config("swimmer/second-v2")  # no id, as the folder is there


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("cartpol", "the nearest are cartpole, cartpole_swingup"),
        ("Hopper", "the nearest is hopper"),
        ("lunar-lander.yaml", "the nearest are lunar_lander, lunar_lander_18"),
        ("experiments/steep.yml", "the nearest is experiments/steeper.yml"),
        ("absent/hoper.yaml", "the nearest is hopper"),
        ("zzz", "give the path of a YAML file, an environment's id, or a recipe's name: "),
    ],
)
def test_a_mistyped_name_is_answered_with_the_nearest(given, nearest, here):
    (here / "experiments").mkdir()
    (here / "experiments" / "steeper.yml").write_text("environment: {id: CartPole-v1}")
    with pytest.raises(ConfigError) as error:
        find_config(given)
    assert str(error.value).startswith(f"{given}: cannot be read (No such file or directory); {nearest}")


def test_commands_read_a_variant_of_a_recipe_by_name(here):
    name = "hopper-openai"
    checked = invoke("check", name, "seed=9")
    assert checked.code == 0 and "id: Hopper-v5" in checked.stdout and "seed: 9" in checked.stdout
    for system in ("slurm", "k8s"):
        launched = invoke("launch", system, name, "--dry-run")
        assert launched.code == 0 and f"runs/{name}" in launched.stdout, launched.stderr
    assert (here / "runs" / f"{name}.k8s" / f"{name}.yaml").read_text() == (
        HOME / "configs/variants/hopper-openai.yaml"
    ).read_text()


@pytest.mark.parametrize("name", ["LunarLander-v3", "ALE/Pong-v5", "gym:MinitaurBulletEnv-v0", "own.py:Corridor"])
def test_an_id_is_a_config_of_one_line(name):
    assert load_config(name) == load_config(name, [f"environment.id={name}"])
    assert load_config(name, ["seed=3"]).environment.id == name
