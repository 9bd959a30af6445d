"""The user's own environments and functions, named path/to/file.py:name or module:callable."""

import re

import pytest

from envs import EnvironmentProblem, make_world
from mpies.keys import EnvironmentSection
from mpies.store import read_metrics
from mpies.task import make_task_world
from tests.conftest import HOME

README = (HOME / "README.md").read_text()


def test_the_readmes_own_environment_trains_as_it_stands_there(tmp_path, run_mpies):
    blocks = re.search(r"## Your own environment\n(.*?)\n## ", README, re.S)[1]
    code, config = (
        "\n".join(line[4:] for line in re.search(rf"`{name}`:\n\n((?:    .*\n|\n)+)", blocks)[1].splitlines())
        for name in ("thermostat.py", "thermostat.yaml")
    )
    assert len([line for line in code.splitlines() if line]) <= 10
    (tmp_path / "thermostat.py").write_text(code)
    (tmp_path / "thermostat.yaml").write_text(config)
    done = run_mpies(2, "train", "thermostat.yaml")
    assert done.code == 0, done.stderr
    rows = read_metrics(tmp_path / "runs" / "thermostat")
    assert float(rows[-1]["eval_mean"]) > -60 > float(rows[0]["return_mean"])


FUNCTION = """
def bowl(x):
    if int(abs(x[0]) * 1e6) % 7 == 0:
        raise ValueError("unlucky")
    return -float(x @ x)
"""


def test_a_function_of_parameters_of_the_users_is_maximised_and_what_it_raises_is_named(tmp_path, run_mpies):
    (tmp_path / "bowl.py").write_text(FUNCTION)
    (tmp_path / "config.yaml").write_text(
        "environment: {id: 'bowl.py:bowl', dimension: 5, shift: 1.0}\nsolver: {kind: snes, population: 20}\n"
        "noise: {size: 20000}\nstop: {generations: 60}\n"
    )
    done = run_mpies(0, "train", "config.yaml", "--out", "run")
    assert done.code == 0, done.stderr
    assert re.search(r"bowl.py:bowl, generation \d+, member \d+, episode 0 .*ValueError: unlucky", done.stderr)
    rows = read_metrics(tmp_path / "run")
    assert float(rows[-1]["eval_mean"]) > -0.1
    assert sum(int(row["failures"]) for row in rows) > 0


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        (None, "own.py:Thing", "there is no file own.py in"),
        ("import nowhere_to_be_found", "own.py:Thing", "cannot be imported (ModuleNotFoundError: No module named"),
        ("1 +", "own.py:Thing", "cannot be imported (SyntaxError"),
        ("raise SystemExit(3)", "own.py:Thing", "cannot be imported (SystemExit: 3)"),
        ("def other(): pass", "own.py:Thing", "own.py has no Thing; it has other"),
        ("Thing = 3", "own.py:Thing", "Thing must be a class or function, but is 3"),
        ("def Thing(): raise OSError('no\\nlicence')", "own.py:Thing", "cannot be built: OSError: no licence"),
        ("def Thing(): return 3", "own.py:Thing", "has no observation_space and no action_space"),
        ("def Thing(a): pass", "own.py:Thing", "does not take these kwargs"),
        (None, "nowhere.to_be:found", "nowhere.to_be cannot be imported (ModuleNotFoundError"),
    ],
)
def test_what_is_wrong_with_a_users_file_is_said_in_one_line(text, name, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "own.py").write_text(text)
    with pytest.raises(EnvironmentProblem) as caught:
        make_world(name)
    assert name in str(caught.value) and said in str(caught.value) and "\n" not in str(caught.value)


def test_a_module_on_the_path_is_as_good_as_a_file():
    assert make_world("envs.lqr:LQR", noise=0.0, max_steps=5).interface.observation_size == 3


FORGETFUL = """
import gymnasium, numpy
from gymnasium.spaces import Box
class Worn(gymnasium.Env):
    observation_space = action_space = Box(-1.0, 1.0, (1,), numpy.float32)
    resets = 0
    def reset(self, seed=None, options=None):
        self.resets += 1
        return numpy.full(1, seed % 5 / 5, numpy.float32), {}
    def step(self, action):
        return numpy.zeros(1, numpy.float32), 1.0 + WEAR * self.resets, True, False, {}
"""


@pytest.mark.parametrize(("wear", "rewards"), [("0.5", [1.5] * 3), ("0", [1.0] * 3)])
def test_an_unknown_environment_that_remembers_is_rebuilt_of_itself(wear, rewards, tmp_path):
    import numpy as np

    (tmp_path / "worn.py").write_text(FORGETFUL.replace("WEAR", wear))
    world, found = make_world(f"{tmp_path}/worn.py:Worn"), []
    for seed in range(3):
        batch = world.open([seed])
        batch.send(np.zeros(1, np.int32), np.zeros((1, 1), np.float32))
        found.append(batch.receive()[1][0])
        batch.close()
    assert found == rewards


def test_an_object_serves_as_many_episodes_as_rebuild_every_says(tmp_path):
    import numpy as np

    (tmp_path / "worn.py").write_text(FORGETFUL.replace("WEAR", "1"))
    world, found = make_world(f"{tmp_path}/worn.py:Worn", rebuild=False, rebuild_every=3), []
    for seed in range(7):
        batch = world.open([seed])
        batch.send(np.zeros(1, np.int32), np.zeros((1, 1), np.float32))
        found.append(batch.receive()[1][0])
        batch.close()
    assert found == [2, 3, 4, 2, 3, 4, 2]


def test_a_run_builds_anew_what_served_a_thousand_episodes(tmp_path):
    (tmp_path / "worn.py").write_text(FORGETFUL.replace("WEAR", "1"))
    world, ages = make_task_world(EnvironmentSection(id=f"{tmp_path}/worn.py:Worn", rebuild="never")), []
    for seed in range(1002):
        world.open([seed]).close()
        ages.append(world._idle[0][1] if world._idle else 0)
    assert ages[998:] == [999, 0, 1, 2]
