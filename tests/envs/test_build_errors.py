"""Whatever goes wrong with an environment becomes one line."""

import sys

import pytest

from mpies.envs import EnvironmentProblem
from mpies.envs.build_errors import missing_package, suggest_ids
from mpies.envs.gymnasium_registry import make


def test_at_most_two_ids_are_suggested():
    known = ["Ant-v5", "Pusher-v5", "LunarLander-v3", "LunarLander-v2", "LunarLander-v1"]
    assert suggest_ids("LunarLandr-v3", known) == "; did you mean LunarLander-v3 or LunarLander-v2?"
    assert suggest_ids("Ant-v4", known) == "; did you mean Ant-v5?"
    assert suggest_ids("nonsense", known) == suggest_ids("Pong-v5", known) == ""  # names count, not versions


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ModuleNotFoundError("No module named 'cv2'"), r"Some-v0 needs .*mpies\[atari\]"),
        (ImportError("No module named 'quux'"), r"Some-v0 needs .*\(No module named 'quux'\); install the package"),
    ],
)
def test_a_missing_package_names_the_extra_that_installs_it(error, message):
    problem = missing_package("Some-v0", error)
    assert isinstance(problem, EnvironmentProblem)
    with pytest.raises(EnvironmentProblem, match=message):
        raise problem


def test_an_environment_of_gymnasium_whose_package_is_missing_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(EnvironmentProblem, match=r'LunarLander-v3.*pip install "mpies\[box2d\]"'):
        make("LunarLander-v3")
