"""Random configs and command lines, most of them wrong: none ends in a traceback.

Whatever a user writes ends with one of four exit codes; a user's mistake is explained in one line, without control
characters.  MPIES_RANDOM_CASES=3000 tries so many of each kind, and other ones in each call.
"""

import copy
import io
import json
import logging
import os
import re
import resource
import shutil
import signal
from typing import Literal, get_args, get_origin

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mpies.cli.main import main
from mpies.config.schema import walk_sections
from tests.support import CARTPOLE

CASES = int(os.environ.get("MPIES_RANDOM_CASES", 0))
SECONDS = 0.4  # of training, before it is asked to stop as by a scheduler
JARGON = r"pydantic|validator|Input should|\bunion\b|another type"  # what pydantic says
MEMORY = 12 * 2**30  # bytes of address space: a case that would take all of the machine's fails instead
random_cases = settings(
    max_examples=CASES or 25,
    derandomize=not CASES,
    deadline=None,
    database=None,
    phases=[Phase.generate],  # the first case that fails is small enough
    suppress_health_check=list(HealthCheck),
)

WORDS = """x|none|auto|true|1e-3|0x10|-|~|a: b|[1, 2|{|@|&x|*x|=|<<|.|/|é|日本|\x1b[31mred|line\nbreak|\ud800|a\x00b
CartPole-v1|cartpole-v1|Pendulum-v1|LQR-v0|NoSuch-v9|ALE/NoSuch-v5|envpool:CartPole-v1|gym:CartPole-v1|gymnasium:
function:sphere|function:|function:nothing|custom.py:Env|custom.py:nothing|custom.py:broken|custom.py:exits|custom.py:f
no_such_file.py:f|json:dumps|no.such.module:f|custom_solver.py:Climb|custom_solver.py:nothing|nevergrad:NoSuch|cma_es
uniform:3|uniform:x|uniform:1000000000000|custom:1,2|custom:nan,1|low_rank|tanh|linear|softmax|2020-01-01|1:30|1_000
run|run/best.h5|run/config.yaml|run/ledger.bin|damaged|absent|/dev/null|../../etc/passwd|x.png|x.npz|x.onnx|absent/x.npz"""
WHOLE = [0, 1, 2, 3, 7, -1, 64, 1000, 10**5, 2**31, 10**8, 10**12, 2**63 - 1, 2**63, 10**22, 10**400]
words = st.sampled_from(["", *re.split(r"\||\n(?=[Cfnur])", WORDS), "a" * 300, "b/" * 200, "1" * 5000])
scalars = st.sampled_from(WHOLE) | st.integers(-10, 300) | st.floats() | words | st.booleans() | st.none()
anything = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=3))

CUSTOM = {
    "custom.py": """
import gymnasium, numpy as np, sys
class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    def reset(self, seed=None, options=None):
        self.count, self.random = 0, np.random.default_rng(seed)
        return np.zeros(3, np.float32), {}
    def step(self, action):
        self.count += 1
        if self.random.random() < 0.02:
            raise RuntimeError("out of balance \\x1b[31m\\x07 \\n here")
        return self.random.random(3).astype(np.float32), float(np.sum(action)), self.count > 20, False, {}
def broken():
    raise ValueError("\\x1b[2J cannot be built \\x00")
def exits():
    sys.exit("bye")
def f(x):
    return -float((x * x).sum())
""",
    "custom_solver.py": "from mpies.solvers.openai_es import OpenAIES\nclass Climb(OpenAIES):\n    pass\n",
}
CART, PENDULUM = ({"id": name, "max_steps": 20} for name in ("CartPole-v1", "Pendulum-v1"))
BASES = [
    *({"environment": CART, "solver": {"kind": kind}} for kind in ("snes", "ars", "novelty_es")),
    {"environment": CART, "policy": {"kind": "gru", "hidden": 3}},
    {"environment": CART, "solver": {"population": 8}, "overlap": 1},
    {"environment": CART | {"id": "gymnasium:CartPole-v1"}},
    {"environment": PENDULUM, "policy": {"kind": "lstm", "hidden": 3}, "solver": {"kind": "pepg"}},
    {"environment": PENDULUM, "policy": {"bins": "uniform:3"}, "solver": {"kind": "sep_cma"}},
    {"environment": PENDULUM, "noise": {"kind": "low_rank", "size": 20_000}},
    *({"environment": {"id": "function:sphere", "dimension": 6}, "solver": {"kind": kind}}
      for kind in ("cma_es", "cr_fm_nes", "deep_ga", "pgpe", "custom_solver.py:Climb")),
    {"environment": {"id": "custom.py:Env", "max_steps": 5, "adaptive": {"start": 3}}},
    {"environment": {"id": "custom.py:f", "dimension": 3}},
    {"environment": {"id": "LQR-v0", "max_steps": 5}},
]  # fmt: skip
SMALL = {"noise": {"size": 20_000}, "evaluation": {"every": 0, "episodes": 2}, "stop": {"generations": 2}}


def all_keys():
    """Of each key its path, the kinds that its sections must have (path to kind), and its field."""
    for path, _, model in walk_sections():
        parts = [re.fullmatch(r"(\w+)(?: \(kind: (.*)\))?", part).groups() for part in filter(None, path.split("."))]
        sections = [name for name, _ in parts]
        kinds = {tuple(sections[: i + 1]): kind for i, (_, kind) in enumerate(parts) if kind}
        yield from (((*sections, key), kinds, field) for key, field in model.model_fields.items())


KEYS = list(all_keys())


def plausible(field):
    """Values of the type that a key has."""
    if get_origin(field.annotation) is Literal:
        return st.sampled_from(get_args(field.annotation))
    text = str(field.annotation)
    for name, values in {
        "list": st.lists(st.integers(0, 9), max_size=3),
        "bool": st.booleans(),
        "int": st.sampled_from([1, 2, 3, 4, 6, 10, 20]),
        "float": st.sampled_from([0, 0.01, 0.1, 0.5, 1, 2, 10]),
    }.items():
        if name in text:
            return values
    return st.none() | words


def put(config, path, value):
    """Set a key, and make its sections where they are absent."""
    for part in path[:-1]:
        if not isinstance(config.get(part), dict):
            config[part] = {}
        config = config[part]
    config[path[-1]] = value


@st.composite
def configs(draw):
    """The text of a config with up to four changes: other values, unknown keys, lost sections, damaged text."""
    config = copy.deepcopy(SMALL | draw(st.sampled_from(BASES)))
    for _ in range(draw(st.integers(0, 4))):
        path, kinds, field = draw(st.sampled_from(KEYS))
        what = draw(st.integers(0, 9))
        if what < 8:
            for section, kind in kinds.items():
                put(config, (*section, "kind"), kind)
            put(config, path, draw(plausible(field) if what < 6 else anything))
        else:
            put(config, (*path[:-1], path[-1] * 2) if what == 8 else path[:1], draw(anything))
    text = yaml.safe_dump(config, default_flow_style=None)
    if draw(st.integers(0, 11)) == 0:
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(words) + draw(st.sampled_from([text[place:], ""]))
    return text


@st.composite
def overrides(draw):
    path, _, field = draw(st.sampled_from(KEYS))
    return draw(st.just(f"{'.'.join(path)}={draw(plausible(field) | anything)}") | words)


numbers = st.sampled_from(["0", "1", "2", "3", "-1", "x", "", "1e3", "1..100", "1,2", "9" * 20, "nan"]) | words
# These start other processes, measure for minutes, or serve until they are stopped.
OTHERS = {"bench", "dashboard", "doctor", "probe", "reproduce", "sweep", "verify"}


@st.composite
def commands(draw):
    """Any command with random options and arguments."""
    name = draw(st.sampled_from(sorted(set(main.commands) - OTHERS - {"train", "check"})))
    command, line = main.commands[name], [name]
    if name == "launch":
        name = draw(st.sampled_from(sorted(command.commands)))
        command, line = command.commands[name], [*line, name, "--dry-run"]
    for parameter in command.params:
        value = draw(words | st.sampled_from(["run", "c.yaml"]) if parameter.param_type_name == "argument" else numbers)
        if parameter.name == "overrides":
            line += draw(st.lists(overrides(), max_size=1))
        elif parameter.param_type_name == "argument":
            line.append(draw(st.sampled_from(["run", "run", "damaged", value])))
        elif draw(st.integers(0, 6)) == 0:
            line += [parameter.opts[0]] if parameter.is_flag else [parameter.opts[0], value]
    return [*line, "--video", "x.mp4"] if name == "play" else line  # else a window would open


@pytest.fixture
def end(tmp_path, capfd, monkeypatch, trained):
    """Run a command line in a folder with a config, a run and a damaged run.  Fails where it ends badly."""

    def look(*_):
        if callable(signal.getsignal(signal.SIGUSR1)):  # training has begun
            os.kill(os.getpid(), signal.SIGUSR1)

    def end(text, line):
        folder = tmp_path / "case"
        shutil.rmtree(folder, ignore_errors=True)
        for name in ("run", "damaged"):
            shutil.copytree(trained(CARTPOLE), folder / name)
        for path in (folder / "damaged").glob("*.*"):
            content = path.read_bytes()
            path.write_bytes(content[: len(content) // 2] + b"\xff")
        for name, content in {**CUSTOM, "c.yaml": text}.items():
            (folder / name).write_bytes(content.replace("\ud800", "\udcff").encode("utf-8", "surrogateescape"))
        os.chdir(folder)
        environment, limits = dict(os.environ), resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, limits[1]))
        before = signal.signal(signal.SIGALRM, look)
        signal.setitimer(signal.ITIMER_REAL, SECONDS, SECONDS)
        try:
            main([word.replace("\x00", "").replace("\ud800", "\udcff") for word in line], prog_name="mpies")
        except SystemExit as error:
            code = error.code or 0
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            signal.signal(signal.SIGUSR1, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_AS, limits)
            os.environ.clear()
            os.environ.update(environment)
            logging.getLogger().handlers.clear()
        assert_ended_well(code, *capfd.readouterr())

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    return end


def assert_ended_well(code, stdout, stderr):
    """A known exit code, no traceback, no control character, and one line that explains a user's mistake."""
    assert code in (0, 1, 2, 75), stderr
    assert "Traceback (most recent call last)" not in stdout + stderr, stderr
    odd = re.search(r"[^\n\t -~\x80-\U0010ffff]|[\x80-\x9f\u2028\u2029]", stdout + stderr)
    assert not odd, (odd, stdout, stderr)
    if stderr.startswith("Usage: "):  # of a group without a command
        return
    log = re.compile(r"(DEBUG|INFO|WARNING|ERROR) rank \d+: |\{\"severity\": \"(?!ERROR)")
    lines = [line for line in stderr.splitlines() if line and not log.match(line)]
    lines = [f"mpies: {json.loads(line)['message']}" if line.startswith("{") else line for line in lines]
    assert all(line.startswith("mpies: ") or line == "Aborted!" for line in lines), stderr
    assert code != 2 or (len(lines) == 1 and not re.search(JARGON, stderr)), stderr


@settings(random_cases, max_examples=CASES or 100)
@given(text=configs(), more=st.lists(overrides(), max_size=2))
def test_checking_a_random_config_ends_well(end, text, more):
    end(text, ["check", "c.yaml", *more])


@random_cases
@given(text=configs(), more=st.lists(overrides(), max_size=1), out=st.just("out") | words)
def test_training_a_random_config_ends_well(end, text, more, out):
    end(text, ["train", "c.yaml", "--out", out, *more, "stop.grace=0"])


@random_cases
@given(text=configs(), line=commands())
def test_a_random_command_line_ends_well(end, text, line):
    end(text, line)
