"""The backend that a run began with plays it to its end, and its policies after that."""

import pytest
import yaml

from mpies.config.loading import load_config
from mpies.core.errors import EnvironmentProblem
from mpies.envs import choose_backend, envpool_env, make_env
from mpies.report.evaluate import evaluate_policy
from mpies.runs.directory import find_backend
from mpies.runs.formats.policy_file import find_policy, load_policy
from mpies.runs.reader import read_run_config
from tests.support import assert_refused, invoke

FEW = ["solver.population=4", "evaluation.episodes=2", "noise.size=20000", "policy.hidden=[]", "--out", "run"]
IS_ABSENT = "backend envpool needs a package that is not installed"


def test_a_run_of_envpool_is_not_continued_by_another_backend(here, without_envpool):
    pytest.importorskip("envpool")
    command = ["train", "CartPole-v1", *FEW]
    assert "backend: envpool" in invoke("check", *command[1:-2]).stdout
    assert invoke(*command, "stop.generations=1").code == 0
    assert read_run_config(here / "run").environment.backend == "envpool"
    assert load_policy(find_policy(here / "run")).config.environment.backend == "envpool"
    assert "CartPole-v1 is played by envpool" in (here / "run" / "log.txt").read_text()
    without_envpool()
    for arguments in (command, [*command, "--dry-run"], ["evaluate", "run"]):
        assert_refused(invoke(*arguments), IS_ABSENT, "environment.backend=gymnasium")
    other = invoke(*command, "environment.backend=gymnasium")
    assert_refused(other, "environment.backend: 'envpool' there, 'gymnasium' now")
    with pytest.raises(EnvironmentProblem, match="backend envpool"):
        evaluate_policy(here / "run", 2)


def test_a_run_of_gymnasium_stays_there_when_envpool_is_installed(here, monkeypatch, without_envpool):
    pytest.importorskip("envpool")
    with monkeypatch.context() as absent:
        absent.setattr(envpool_env, "_import_envpool", lambda: None)
        envpool_env.offers.cache_clear()
        invoke("train", "CartPole-v1", *FEW, "stop.generations=1", code=0)
    envpool_env.offers.cache_clear()
    invoke("train", "CartPole-v1", *FEW, "stop.generations=2", code=0)
    assert read_run_config(here / "run").environment.backend == "gymnasium"


def test_a_robot_is_played_by_mujoco_in_new_runs_alone(here):
    pytest.importorskip("mujoco")
    config = load_config("Hopper-v5")
    assert find_backend(None, config) == "mujoco"
    former = "envpool" if envpool_env.is_installed() else "gymnasium"
    assert choose_backend("Hopper-v5", {}, envpool_env.is_installed()) == former
    assert make_env("Hopper-v5").backend == former  # of a policy of an earlier mpies
    assert "Hopper-v5 (mujoco): " in invoke("probe", "Hopper-v5", "--episodes", 0, "--steps", 5).stdout
    assert invoke("train", "Hopper-v5", *FEW, "stop.generations=1", "environment.max_steps=9").code == 0
    assert load_policy(find_policy(here / "run")).config.environment.backend == "mujoco"


def test_a_run_of_an_earlier_mpies_is_played_as_its_packages_say(here, without_envpool):
    pytest.importorskip("envpool")
    command = ["train", "CartPole-v1", *FEW, "environment.max_steps=40"]
    invoke(*command, "stop.generations=1", code=0)
    config = here / "run" / "config.yaml"
    values = yaml.safe_load(config.read_text())
    values["environment"]["backend"] = "auto"
    text = yaml.safe_dump(values, sort_keys=False)
    for old, backend in ((text.replace("  envpool: ", "  other: "), "gymnasium"), (text, "envpool")):
        config.write_text(old)
        assert find_backend("run", load_config("CartPole-v1")) == backend
    invoke(*command, "stop.generations=2", code=0)
    assert read_run_config(here / "run").environment.backend == "envpool"
    config.write_text(text)
    without_envpool()
    for identity, expected in (("LQR-v0", "gymnasium"), ("HopperBulletEnv-v0", "gym"), ("Hopper-v5", "envpool")):
        assert choose_backend(identity, {}, had_envpool=True) == expected
    assert_refused(invoke(*command, "stop.generations=3"), IS_ABSENT)
