"""The backend that a run began with plays it to its end, and its policies after that."""

import pytest

from mpies.core.errors import EnvironmentProblem
from mpies.envs import envpool_env
from mpies.report.evaluate import evaluate_policy
from mpies.runs.policy_file import find_policy, load_policy
from mpies.runs.reader import read_run_config
from tests.support import invoke

FEW = ["solver.population=4", "evaluation.episodes=2", "noise.size=20000", "policy.hidden=[]", "--out", "run"]


@pytest.fixture
def without_envpool(monkeypatch):
    """Function that lets EnvPool be absent from now on."""

    def remove():
        monkeypatch.setattr(envpool_env, "_import_envpool", lambda: None)
        envpool_env.offers.cache_clear()

    yield remove
    envpool_env.offers.cache_clear()


def test_a_run_of_envpool_is_not_continued_by_another_backend(tmp_path, monkeypatch, without_envpool):
    pytest.importorskip("envpool")
    monkeypatch.chdir(tmp_path)
    command = ["train", "CartPole-v1", *FEW]
    assert "backend: envpool" in invoke("check", *command[1:-2]).stdout
    assert invoke(*command, "stop.generations=1").code == 0
    assert read_run_config(tmp_path / "run").environment.backend == "envpool"
    assert load_policy(find_policy(tmp_path / "run")).config.environment.backend == "envpool"
    assert "CartPole-v1 is played by envpool" in (tmp_path / "run" / "log.txt").read_text()
    without_envpool()
    for arguments in (command, [*command, "--dry-run"], ["evaluate", "run"]):
        ended = invoke(*arguments)
        assert ended.code == 2 and "backend envpool needs a package that is not installed" in ended.stderr
        assert "environment.backend=gymnasium" in ended.stderr and len(ended.stderr.splitlines()) == 1
    ended = invoke(*command, "environment.backend=gymnasium")
    assert ended.code == 2 and "environment.backend: 'envpool' there, 'gymnasium' now" in ended.stderr
    with pytest.raises(EnvironmentProblem, match="backend envpool"):
        evaluate_policy(tmp_path / "run", 2)


def test_a_run_of_gymnasium_stays_there_when_envpool_is_installed(tmp_path, monkeypatch, without_envpool):
    pytest.importorskip("envpool")
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as absent:
        absent.setattr(envpool_env, "_import_envpool", lambda: None)
        envpool_env.offers.cache_clear()
        assert invoke("train", "CartPole-v1", *FEW, "stop.generations=1").code == 0
    envpool_env.offers.cache_clear()
    assert invoke("train", "CartPole-v1", *FEW, "stop.generations=2").code == 0
    assert read_run_config(tmp_path / "run").environment.backend == "gymnasium"


def test_a_run_of_an_earlier_mpies_goes_on(tmp_path, monkeypatch):
    """Its config.yaml has the backend auto."""
    monkeypatch.chdir(tmp_path)
    assert invoke("train", "LQR-v0", *FEW, "stop.generations=1").code == 0
    config = tmp_path / "run" / "config.yaml"
    config.write_text(config.read_text().replace("backend: gymnasium", "backend: auto"))
    assert invoke("train", "LQR-v0", *FEW, "stop.generations=2").code == 0
    assert read_run_config(tmp_path / "run").environment.backend == "auto"
