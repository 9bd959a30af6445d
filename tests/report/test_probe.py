"""mpies probe: environments that are reproducible, that must be rebuilt, and that are not reproducible."""

import pytest

from mpies.report.probe import NOT_REPRODUCIBLE, REPRODUCIBLE, WHEN_REBUILT, judge, section_of
from tests.report.web.served_runs import append
from tests.support import assert_refused, environment_module, invoke

# Environments with episodes of three steps, and what their first observation depends on.
ENVIRONMENTS = {
    "Forgetful": "seed % 7 / 7",
    "Remembering": "self.episode / 1000",
    "Random": "np.random.default_rng().random()",
    "Still": "0",
    "Loud": 'os.write(1, b"\\xff\\n") / 9',
    "Lonely": 'os._exit(9) if "--fresh" in sys.argv else 0',
}


@pytest.fixture
def folder(here):
    for name, number in ENVIRONMENTS.items():
        reset = f"self.episode += 1\nreturn np.array([{number}, 1], np.float32), {{}}"
        append(here / "own.py", environment_module(name, "self.episode = 0", reset, length=3))
    return here


def test_the_verdict():
    for elsewhere, used, rebuilt, verdict in (
        ("a", "a", "a", REPRODUCIBLE),
        ("a", "b", "a", WHEN_REBUILT),
        ("a", "b", "b", NOT_REPRODUCIBLE),
        ("b", "a", "a", NOT_REPRODUCIBLE),
    ):
        assert judge(["a"], [elsewhere], [used], [rebuilt]) == verdict


def test_environments_are_told_apart_and_a_process_that_dies_while_it_plays_is_told(folder):
    outcome = invoke("probe", "own.py:Remembering", "own.py:Still", "--steps", "5", "--episodes", "0", code=0)
    remembering, still = outcome.stdout.splitlines()
    assert remembering == f"own.py:Remembering (your own): {WHEN_REBUILT}; memory not measured"
    one = f"{REPRODUCIBLE}; memory not measured; different seeds give the same episode"
    assert still == f"own.py:Still (your own): {one}"
    refused = invoke("probe", "own.py:Lonely", "--episodes", "0")
    assert_refused(refused, "another one that played it ended with exit code 9")


def test_each_has_a_line_with_the_growth_of_memory_and_the_worst_decides_the_exit_code(folder, write_config):
    write_config("environment: {id: 'own.py:Forgetful'}\n", "own.yaml")
    names = "own.yaml", "own.py:Random", "own.py:Loud"  # the last one prints what is no text
    lines = invoke("probe", *names, "--episodes", "10", "--steps", "5", code=1).stdout.splitlines()
    for line, name, verdict in zip(lines, names, (REPRODUCIBLE, NOT_REPRODUCIBLE, REPRODUCIBLE), strict=True):
        assert line.startswith(f"{name} (your own): {verdict}; memory over 10 episodes ") and " MB" in line
    config = write_config("environment: {id: CartPole-v1, max_steps: 7}\n")
    assert section_of(str(config)).max_steps == 7 and section_of("CartPole-v1").max_steps is None
    config = write_config("environment: {id: 'function:sphere', dimension: 3}\n")
    assert_refused(invoke("probe", config), "has no episodes to probe")
