"""The user's own environments and functions, named path/to/file.py:name or module:callable."""

import re
import sys

import pytest

from mpies.comm.serial import Serial
from mpies.config.environment import EnvironmentSection
from mpies.config.loading import validate_config
from mpies.envs import EnvironmentProblem, make_env
from mpies.envs.custom_env import is_custom
from mpies.runs.formats.metrics import read_metrics
from mpies.training.task import build_task, make_task_env
from tests.envs.episodes import play
from tests.support import HOME

README = (HOME / "README.md").read_text()


def test_ids_of_the_user_are_told_from_those_of_a_registry():
    ids = ("own.py:Thing", "package.module:Thing", "ALE/Pong-v5", "some/path:Thing", ":Thing", "own.py:")
    assert [name for name in ids if is_custom(name)] == ["own.py:Thing", "package.module:Thing"]


def test_the_environment_in_the_readme_trains_as_printed(tmp_path, run_mpies):
    section = re.search(r"## A custom environment\n(.*?)\n## ", README, re.S)[1]
    code, config = (
        "\n".join(line[4:] for line in re.search(rf"`{name}`:\n\n((?:    .*\n|\n)+)", section)[1].splitlines())
        for name in ("thermostat.py", "thermostat.yaml")
    )
    assert len([line for line in code.splitlines() if line]) <= 10
    (tmp_path / "thermostat.py").write_text(code)
    (tmp_path / "thermostat.yaml").write_text(config)
    run_mpies(0, "train", "thermostat.yaml", code=0)
    rows = read_metrics(tmp_path / "runs" / "thermostat")
    assert float(rows[-1]["eval_mean"]) > -60 > float(rows[0]["return_mean"])


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (None, "own.py:Thing", "there is no file own.py in"),
        ("import nowhere_to_be_found", "own.py:Thing", "cannot be imported (ModuleNotFoundError: No module named"),
        ("1 +", "own.py:Thing", "cannot be imported (SyntaxError"),
        ("raise SystemExit(3)", "own.py:Thing", "cannot be imported (SystemExit: 3)"),
        ("def other(): pass", "own.py:Thing", "own.py has no Thing; it has other"),
        ("Thing = 3", "own.py:Thing", "Thing must be a class or function, but is 3"),
        ("def Thing(): raise OSError('no\\nlicence')", "own.py:Thing", "cannot be built: OSError: no licence"),
        ("def Thing(): return 3", "own.py:Thing", "has no observation_space and no action_space"),
        ("def Thing(): return 3", "own.py:Thing", "what it returned, an int, has no"),
        ("def Thing(a): pass", "own.py:Thing", "argument: 'a'; a function of a vector needs environment.dimension"),
        *(
            ("class Thing: pass", name, "name a file, and the class or function in it, as in own.py:NAME")
            for name in ("own.py", "own.py:", "own.py:Thing()", "gymnasium:own.py:Thing-v0")
        ),
        (None, "nowhere.to_be:found", "nowhere.to_be cannot be imported (ModuleNotFoundError"),
    ],
)
def test_mistakes_in_a_users_file_are_one_line_and_the_mended_file_is_read_again(text, name, message, here):
    if text is not None:
        (here / "own.py").write_text(text)
    with pytest.raises(EnvironmentProblem) as caught:
        make_env(name)
    line = str(caught.value)
    assert name.removeprefix("gymnasium:") in line and message in line and "\n" not in line
    if any(words in message for words in ("own.py in", "imported", "has no Thing", "but is 3")):  # no module is left
        (here / "own.py").write_text("from mpies.envs.lqr import LQR as Thing")  # as one mends it beside a notebook
        assert make_env("own.py:Thing").interface.observation_size == 3


@pytest.mark.parametrize("environment_id", ["nearby_world:Nearby", "nearby_world:Nearby-v0"])
def test_a_module_is_found_in_the_folder_of_the_command(environment_id, here, monkeypatch):
    """As on ranks, which `python -m mpies` starts."""
    (here / "nearby_world.py").write_text(
        "import gymnasium\nfrom mpies.envs.lqr import LQR as Nearby\ngymnasium.register('Nearby-v0', Nearby)\n"
    )
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    monkeypatch.delitem(sys.modules, "nearby_world", raising=False)
    assert make_env(environment_id).interface.observation_size == 3


OLD = """
from gymnasium.spaces import Box, Discrete
class Old:
    observation_space, action_space = Box(0.0, 9.0, (1,)), Discrete(2)
    def seed(self, seed): self.number = seed
    def reset(self): return [self.number]
    def step(self, action): return [action], 1.0, True, {}
    def close(self): pass
"""


SEED = "    def seed(self, seed): self.number = seed\n    def reset"
NO_METHOD = "    seed = None\n    def reset(self, seed=None, options=None): return [seed]\n    def none"
OLD_ONES = {
    "whole": OLD,
    "no close": OLD.replace("    def close(self): pass\n", ""),
    "no seed": OLD.replace(SEED, NO_METHOD),
}


@pytest.mark.parametrize("kind", OLD_ONES)
def test_gyms_old_interface_is_adapted(kind, tmp_path, caplog):
    (tmp_path / "old.py").write_text(OLD_ONES[kind])
    env = make_env(f"{tmp_path}/old.py:Old", rebuild=True)
    (episode,) = play(env, [7], action=1)
    assert episode.observations.tolist() == [[7], [1]] and episode.is_over
    env.close()
    assert caplog.text == ""


def test_an_old_interface_whose_info_is_no_dict_is_refused(tmp_path):
    (tmp_path / "own.py").write_text(OLD.replace("{}", "None"))
    with pytest.raises(EnvironmentProblem, match=r"own.py:Old: the info of step must be a dict, but is None"):
        make_env(f"{tmp_path}/own.py:Old").try_out()


def test_spaces_of_gym_in_an_environment_of_gymnasium_are_named(tmp_path):
    pytest.importorskip("gym")
    text = OLD.replace("class Old", "class Old(gymnasium.Env)").replace("= Box(", "= gym.spaces.Box(")
    (tmp_path / "new.py").write_text("import gym, gymnasium\n" + text)
    expected = r"new.py:Old has observations of kind gym.spaces.Box; take it from gymnasium.spaces$"
    with pytest.raises(EnvironmentProblem, match=expected):
        make_env(f"{tmp_path}/new.py:Old")


CACHED = """
import functools
@functools.cache
def make(): return Old()
make_new = make.__wrapped__
"""


@pytest.mark.parametrize(("name", "instances"), [("make", None), ("make", 2), ("make", 1), ("make_new", None)])
def test_a_factory_that_returns_one_object_again_and_again_is_refused(name, instances, tmp_path):
    (tmp_path / "old.py").write_text(OLD + CACHED)
    environment = {"id": f"{tmp_path}/old.py:{name}", "instances": instances, "rebuild": "never", "max_steps": 9}
    config = validate_config({"environment": environment | {"action_repeat": 2}, "policy": {"hidden": []}}, "x")
    if name == "make_new" or instances == 1:
        build_task(config, Serial())
        return
    with pytest.raises(EnvironmentProblem, match=r"old.py:make must return a new object each time it is called, but"):
        build_task(config, Serial())


def test_a_run_replaces_an_object_after_a_thousand_episodes():
    kwargs = {"carries_history": True}
    env = make_task_env(EnvironmentSection(id="tests.envs.test_gymnasium_env:Worn", kwargs=kwargs, rebuild="never"))
    rewards = [play(env, [3])[0].rewards[0] for _ in range(1002)]
    assert rewards[997:] == [998, 999, 1000, 1, 2]


def test_a_class_may_step_batches_itself(here):
    (here / "mine.py").write_text(
        "from mpies.envs import make_env\n"
        "class Poles:\n"
        "    @classmethod\n"
        "    def make_vector_env(cls, name, max_steps, backend='gymnasium'):\n"
        "        return make_env('CartPole-v1', backend, max_steps)\n"
        "class Wrong:\n"
        "    make_vector_env = staticmethod(lambda name, max_steps: name)\n"
    )
    env = make_env("mine.py:Poles", max_steps=5)
    assert len(play(env, [1], steps=9)[0].rewards) == 5
    with pytest.raises(EnvironmentProblem, match=r"^mine.py:Poles does not accept these kwargs: .*'gravity'"):
        make_env("mine.py:Poles", gravity=1)
    with pytest.raises(EnvironmentProblem, match=r"make_vector_env must return a mpies.envs.VectorEnv, but returns"):
        make_env("mine.py:Wrong")
