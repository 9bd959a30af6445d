"""What a user sees of environments and functions that are wrong in one way: one line, and the right exit code."""

import re
import shutil
import signal
import time

import pytest

from mpies.core.interrupt import Interrupted, interruptible, is_interrupt
from mpies.runs.formats.metrics import read_digests, read_metrics
from tests.support import HOME, assert_refused, invoke, wait_for

# Refused before the first generation.  Name in misbehaving.py, what the one line says.
REFUSED_ENVIRONMENTS = {
    "FourValues": "step must return the five values .*, but returns a tuple of 4",
    "NoInfo": r"reset must return the two values observation, info, but returns an array of shape \(2,\)",
    "NoOptions": r"reset must take seed and options, .*, but takes \(\*, seed=None\)",
    "NoAction": r"each of 5 episodes fails .*TypeError: NoAction.step\(\) takes 1 positional argument but 2 were given",
    "NoReward": "the reward of step must be a number, but is None",
    "RewardInArray": r"the reward of step must be a number, but is an array of shape \(1,\)",
    "RewardNaN": "each of 5 episodes fails .*the reward of step is nan",
    "NoObservation": "the observation of reset must hold numbers, but is None",
    "ObservationNaN": "each of 5 episodes fails .*number 1 of the observation of reset is nan",
    "ObservationTooLong": "observation has 3 numbers, but 2 were expected, in the observation of reset",
    "ObservationRagged": "the observation of reset must hold numbers, but is a list of 2",
    "ObservationInDict": "the observation of reset must hold numbers, but is a dict",
    "ObservationOutside": "observation is 7, which is not one of 0 to 2, in the observation of reset",
    "NoTerminated": "terminated must be True or False, but is None",
    "StepRaises": "each of 5 episodes fails .*KeyError: 'no such joint'",
    "ConstructorExits": "cannot be built: SystemExit: no display",
    "ConstructorControls": r"cannot be built: ValueError: \\x1b\[31mred\\x07",
    "SpaceRaises": "cannot be built: RuntimeError: not connected",
    "TextSpace": r"has observations of kind Text \(observation\['word'\]\); needed: Box, Discrete, MultiDiscrete,",
    "vectorised": "must make a single environment, but made 4 in one vectorised .*; mpies makes as many",
    "not_an_environment": "must make a gymnasium.Env, but what it returned, a dict, has no observation_space",
}
REFUSED_FUNCTIONS = {
    "returns_nothing": "the value of the function must be a number, but is None",
    "returns_array": r"the value of the function must be a number, but is an array of shape \(3,\)",
    "returns_nan": "each of 5 calls fails, the last by the value nan",
    "takes_two": r"the function must take one argument, a vector of 3 numbers, but takes \(x, y\)",
    "always_raises": "each of 5 calls fails, the last by OSError: no data",
}

# The members whose episodes fail rank worst and are named; the run goes on.  What the log says of them.
COSTS_MEMBERS = {
    "Exits": "SystemExit: 0;",
    "Interrupts": "KeyboardInterrupt;",
    "RaisesOwn": "Own: of its own kind;",
    "RaisesMuch": r"ValueError: much .{480,500} \.\.\.;",
    "RaisesControls": r"ValueError: \\x1b\[31mred\\x07 \\udcff;",
    "RaisesUnspeakable": r"Unspeakable: \(its message cannot be shown\);",
    "sometimes_exits": "SystemExit: 0;",
}
# The episodes work, and give the bits of Good or good.  What the log says of it, None for nothing.
HARMLESS = {
    "CloseRaises": "close raises SystemExit: cannot be closed; its episodes are not affected",
    "ChangesFolder": None,
    "Prints": None,
    "TakesSignals": None,
    "changes_argument": None,
}


@pytest.fixture
def folder(here):
    """The working directory, with misbehaving.py as a file of the user's."""
    shutil.copy(HOME / "tests" / "envs" / "misbehaving.py", here / "own.py")
    return here


def config_of(name, file="own.py"):
    """YAML text that trains an environment or a function of a file."""
    if name in REFUSED_FUNCTIONS or (name[0].islower() and name not in REFUSED_ENVIRONMENTS):
        task = f"environment: {{id: '{file}:{name}', dimension: 3}}\nsolver: {{kind: snes, population: 12}}\n"
    else:
        more = {"NoOptions": ", max_steps: 9", "CloseRaises": ", rebuild: always"}.get(name, "")
        task = f"environment: {{id: '{file}:{name}'{more}}}\npolicy: {{hidden: []}}\nsolver: {{population: 12}}\n"
    return task + "noise: {size: 1000}\nevaluation: {every: 2, episodes: 3}\nstop: {generations: 3}\nseed: 7\n"


@pytest.mark.parametrize("name", [*REFUSED_ENVIRONMENTS, *REFUSED_FUNCTIONS])
def test_what_is_wrong_in_every_episode_is_refused_in_one_line(name, folder, write_config):
    message = (REFUSED_ENVIRONMENTS | REFUSED_FUNCTIONS)[name]
    command = ("train", "--out", "run") if name == "NoReward" else ("check",)
    refused = invoke(*command, write_config(config_of(name)))
    assert_refused(refused, f"own.py:{name}")
    assert re.search(message, refused.stderr) and not (folder / "run").exists(), refused.stderr


def test_probe_says_what_is_wrong_and_counts_the_episodes_that_fail_later(folder):
    outcome = invoke("probe", "own.py:StepRaises", "--episodes", 0, code=1)
    assert outcome.stdout.startswith("own.py:StepRaises (your own): every episode fails: ") and outcome.stderr == ""
    assert "no such joint" in outcome.stdout and outcome.stdout.count("\n") == 1
    outcome = invoke("probe", "own.py:Exits", "--episodes", 0, code=0)  # one of the two seeds of the probe
    assert outcome.stdout.endswith("; 3 of its episodes fail: SystemExit: 0\n")


@pytest.mark.parametrize("name", COSTS_MEMBERS)
def test_what_is_raised_costs_its_member_and_is_named(name, folder, write_config, run_mpies):
    outcome = run_mpies(0, "train", write_config(config_of(name)), "--out", "run", "stop.max_failures=0.9")
    rows = read_metrics(folder / "run")
    assert sum(int(row["failures"]) for row in rows) > 0 and int(rows[0]["failures"]) < 12
    lines = outcome.stderr.splitlines()
    assert all(line.startswith(("WARNING rank 0: own.py:", "ERROR rank 0: ")) for line in lines), outcome.stderr
    assert re.search(COSTS_MEMBERS[name], outcome.stderr), outcome.stderr
    log = (folder / "run" / "log.txt").read_text()
    assert re.search(COSTS_MEMBERS[name], log)
    assert all(letter.isprintable() or letter == "\n" for letter in log + outcome.stderr + outcome.stdout)
    assert outcome.code == (len(rows) < 3), outcome.stderr  # 1 where an episode of the last evaluation fails


@pytest.mark.parametrize("name", HARMLESS)
def test_what_harms_no_episode_changes_no_bit(name, folder, write_config, run_mpies, digests_of):
    good = config_of("good" if name[0].islower() else "Good", HOME / "tests" / "envs" / "misbehaving.py")
    outcome = run_mpies(0, "train", write_config(config_of(name)), "--out", "run", code=0)
    assert read_digests(folder / "run") == digests_of(good) != []
    assert re.search(HARMLESS[name], outcome.stderr) if HARMLESS[name] else outcome.stderr == ""
    assert len(list(folder.glob("**/metrics.csv"))) == 1


@pytest.fixture
def own(folder, write_config, run_mpies, monkeypatch):
    """own.py after a run of its Good, which tests make another environment of; so they say that they trust it."""
    assert run_mpies(0, "train", write_config(config_of("Good")), "--out", "run").code == 0
    monkeypatch.setenv("MPIES_TRUST", "1")
    return folder / "own.py"


def test_evaluate_and_play_name_what_an_episode_raises(own, run_mpies):
    message = "KeyboardInterrupt"
    own.write_text(own.read_text() + "\nGood = Interrupts\n")
    evaluated = run_mpies(0, "evaluate", "run", "--episodes", 20)
    assert evaluated.code == 1 and evaluated.stderr == ""
    assert re.search(rf"\d of 20 held-out episodes failed \({message}\); of the others: mean return", evaluated.stdout)
    played = run_mpies(0, "play", "run", "--video", "film.gif", "--episodes", 20)
    assert played.code == 2 and f"own.py:Good cannot be shown: {message}" in played.stderr
    member = run_mpies(0, "play", "run", "--member", "1,0")
    assert member.code in (0, 1) and "member 0 of generation 1: recorded" in member.stdout


def test_an_evaluation_without_any_episode_that_works_has_no_mean(own, run_mpies):
    own.write_text(own.read_text().replace("self.seed % 4 == 1 and", "") + "\nGood = RaisesOwn\n")
    in_json = run_mpies(0, "evaluate", "run", "--episodes", 6, "--json")
    assert in_json.code == 1 and '"mean": null' in in_json.stdout and "NaN" not in in_json.stdout


@pytest.mark.parametrize("command", [("play", "run", "--video", "film.gif"), ("probe", "own.py:Good")])
def test_ctrl_c_ends_a_command_at_once(command, own, folder, start_mpies):
    own.write_text(own.read_text() + "\nGood = Endless\n")
    process = start_mpies(0, *command)
    wait_for((folder / "stepped").exists, process)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    stdout, stderr = process.communicate(timeout=30)
    assert time.monotonic() - began < 10 and process.returncode == 1
    assert (stdout, stderr.strip()) == ("", "Aborted!")
    assert not list(folder.glob(".film*"))


def test_ctrl_c_is_told_from_what_a_user_raises():
    assert is_interrupt(KeyboardInterrupt())  # Python's own handler is in place
    assert not is_interrupt(SystemExit())
    with interruptible():
        assert not is_interrupt(KeyboardInterrupt()) and is_interrupt(Interrupted())
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL  # a second one ends the process
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with interruptible():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
