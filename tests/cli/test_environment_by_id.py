"""Commands take the id of an environment in place of a config that names it and nothing else."""

import pytest

from mpies.config.loading import load_config
from mpies.config.recipes import find_config
from mpies.core.errors import ConfigError
from mpies.runs.formats.metrics import read_metrics
from tests.support import assert_refused, invoke


@pytest.mark.parametrize("name", ["LunarLander-v3", "ALE/Pong-v5", "gym:MinitaurBulletEnv-v0", "own.py:Corridor"])
def test_an_id_is_a_config_of_one_line(name):
    assert load_config(name) == load_config(name, [f"environment.id={name}"])
    assert load_config(name, ["seed=3"]).environment.id == name


def test_it_is_trained_into_a_run_of_its_name(run_mpies, tmp_path):
    done = run_mpies(0, "train", "CartPole-v1", "stop.generations=1", "evaluation.every=0", "evaluation.episodes=2")
    assert done.code == 0, done.stderr
    assert len(read_metrics(next((tmp_path / "runs").glob("CartPole-v1_*")))) == 1


def test_a_file_of_this_name_comes_first(here):
    (here / "CartPole-v1").write_text("environment: {id: Acrobot-v1}")
    assert load_config("CartPole-v1").environment.id == "Acrobot-v1"


def test_a_path_in_a_folder_that_is_there_is_no_id(here):
    (here / "experiments").mkdir()
    with pytest.raises(ConfigError, match="experiments/second-v2: cannot be read"):
        find_config("experiments/second-v2")


def test_an_unknown_id_is_answered_with_the_nearest():
    assert_refused(invoke("check", "LunarLandr-v3"), "'LunarLandr-v3' is not known", "LunarLander-v3")


def test_an_overlay_of_kubernetes_holds_the_config(here):
    launched = invoke("launch", "k8s", "CartPole-v1", "--dry-run")
    assert launched.code == 0, launched.stderr
    assert (here / "runs/CartPole-v1.k8s/CartPole-v1.yaml").read_text() == "environment: {id: CartPole-v1}\n"
