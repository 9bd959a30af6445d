"""Whatever goes wrong with an environment becomes one line."""

import pytest

from mpies.envs import EnvironmentProblem
from mpies.envs.build_errors import missing_package, suggest_ids


def test_at_most_two_ids_are_suggested():
    known = ["Ant-v5", "Pusher-v5", "LunarLander-v3", "LunarLander-v2", "LunarLander-v1"]
    assert suggest_ids("LunarLandr-v3", known) == "; did you mean LunarLander-v3 or LunarLander-v2?"
    assert suggest_ids("Ant-v4", known) == "; did you mean Ant-v5?"
    assert suggest_ids("nonsense", known) == suggest_ids("Pong-v5", known) == ""  # names count, not versions


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ImportError("No module named 'Box2D'"), 'Some-v0 needs .* pip install "mpies\\[box2d\\]"'),
        (ModuleNotFoundError("No module named 'cv2'"), r"Some-v0 needs .*mpies\[atari\]"),
        (ImportError("No module named 'quux'"), r"Some-v0 needs .*\(No module named 'quux'\); install the package"),
    ],
)
def test_a_missing_package_names_the_extra_that_installs_it(error, message):
    problem = missing_package("Some-v0", error)
    assert isinstance(problem, EnvironmentProblem)
    with pytest.raises(EnvironmentProblem, match=message):
        raise problem
