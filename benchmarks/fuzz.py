"""Random configs and command lines, most of them wrong: none may end in a traceback.

    python benchmarks/fuzz.py [--cases 10000] [--first 0] [--json FILE]
    python benchmarks/fuzz.py --only N        one case: its command, its config, what it prints

A case is a function of its number.  Worker processes run the command line in process, one case after the other, each in
a folder of its own.  A case fails if it prints a traceback or a control character, ends with an exit code other than
0, 1, 2 and 75, explains a user's mistake in more than one line, kills its process or does not end.  Training that takes
longer than LIMIT is stopped as by a scheduler.  Prints a table of how the cases ended; exits 1 if any failed.
"""

import argparse
import collections
import contextlib
import faulthandler
import io
import json
import logging
import os
import random
import re
import resource
import selectors
import shlex
import shutil
import signal
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

import yaml
from pydantic.fields import FieldInfo

from mpies.cli.main import main as mpies
from mpies.config.schema import walk_sections
from mpies.core.threads import limit_threads

BATCH = 500  # cases of a worker process
LIMIT = 0.4  # seconds after which training is stopped
HANGS = 30.0  # seconds after which a case counts as hanging
MEMORY = 12 * 2**30  # bytes of address space of a worker: a case that would take the machine's memory fails instead
CODES = (0, 1, 2, 75)

Values = dict[str, Any]
Random = random.Random


class Case(NamedTuple):
    """A command line.  files: names to contents, to be written into the folder it runs in."""

    arguments: list[str]
    files: dict[str, str | bytes]


class Ending(NamedTuple):
    """How a case ended.  problem: what is wrong with that, '' if nothing."""

    number: int
    command: str
    code: int
    problem: str
    output: str


# Values

WHOLE = [0, 1, 2, 3, 7, -1, -5, 64, 1000, 10**5, 2**31 - 1, 2**31, 10**8, 10**12, 2**63 - 1, 2**63, 10**22, 10**400]
REAL = [0.0, -0.0, 1e-320, 1e-12, 0.05, 0.5, 1.0, 1.5, -2.5, 1e6, 1e38, 1e308, float("inf"), float("nan")]
TEXTS = [
    *(
        "",
        " ",
        "x",
        "none",
        "auto",
        "true",
        "1e-3",
        "0x10",
        "1_000",
        "-",
        "~",
        "a: b",
        "[1, 2",
        "{",
        "@",
        "%",
        "&x",
        "*x",
    ),
    *("CartPole-v1", "cartpole-v1", "CartPole", "Pendulum-v1", "LQR-v0", "CartPoleSwingUp-v0", "FrozenLake-v1"),
    *("NoSuch-v9", "ALE/NoSuch-v5", "envpool:CartPole-v1", "gym:CartPole-v1", "gymnasium:CartPole-v1", "gymnasium:"),
    *("function:sphere", "function:", "function:nothing", "own_env.py:Env", "own_env.py:nothing", "own_env.py:broken"),
    *("own_env.py:exits", "own_function.py:f", "no_such_file.py:f", "json:dumps", "builtins:dict", "no.such.module:f"),
    *(
        "own_solver.py:Climb",
        "own_solver.py:nothing",
        "nevergrad:OnePlusOne",
        "nevergrad:NoSuch",
        "openai_es",
        "cma_es",
    ),
    *("uniform:3", "uniform:1", "uniform:x", "uniform:1000000000000", "custom:1,2", "custom:", "custom:nan,1"),
    *("low_rank", "full", "tanh", "linear", "scale", "clip", "gaussian", "softmax", "2020-01-01", "1:30", "=", "<<"),
    *("run", "run/best.h5", "run/config.yaml", "run/ledger.bin", "damaged", "/dev/null", "/proc/self/mem", ".", "/"),
    *("\x00", "a\x00b", "\x1b[31mred", "line\nbreak", "tab\there", "\r", "\u2028", "é", "日本", "\U0001f600", "\ud800"),
    *("../../etc/passwd", "~", "a" * 300, "b/" * 200, "1" * 5000, "x" * 70_000),
]


def whole_number(r: Random) -> int:
    return r.choice(WHOLE) if r.random() < 0.6 else r.randint(-10, 300)


def value(r: Random, depth: int = 0) -> Any:
    """Anything that YAML can hold."""
    kind = r.random()
    if kind < 0.3:
        return whole_number(r)
    if kind < 0.5:
        return r.choice(REAL)
    if kind < 0.75 or depth > 2:
        return r.choice(TEXTS)
    if kind < 0.85:
        return r.choice([None, True, False])
    if kind < 0.93:
        return [value(r, depth + 1) for _ in range(r.randint(0, 4))]
    return {r.choice([*TEXTS[:8], "kind", "id", "size"]): value(r, depth + 1) for _ in range(r.randint(0, 3))}


# Configs

SMALL = {
    "noise": {"size": 20_000},
    "evaluation": {"every": 0, "episodes": 2},
    "stop": {"generations": 2},
}
CARTPOLE = {"environment": {"id": "CartPole-v1", "max_steps": 20}, "policy": {"hidden": [4]}}
PENDULUM = {"environment": {"id": "Pendulum-v1", "max_steps": 10}, "policy": {"hidden": []}}
SPHERE = {"environment": {"id": "function:sphere", "dimension": 6}}
BASES: list[Values] = [
    CARTPOLE | {"solver": {"population": 8}},
    CARTPOLE | {"solver": {"kind": "snes"}},
    CARTPOLE | {"solver": {"kind": "ars", "population": 8}, "overlap": 0},
    CARTPOLE | {"solver": {"kind": "novelty_es", "population": 8}},
    CARTPOLE | {"policy": {"kind": "gru", "hidden": 3}, "solver": {"population": 4}},
    CARTPOLE | {"solver": {"population": 8}, "overlap": 1},
    CARTPOLE | {"environment": {"id": "gymnasium:CartPole-v1", "max_steps": 10}, "solver": {"population": 4}},
    PENDULUM | {"policy": {"kind": "lstm", "hidden": 3}, "solver": {"kind": "pepg", "population": 4}},
    PENDULUM | {"policy": {"bins": "uniform:3"}, "solver": {"kind": "sep_cma"}},
    PENDULUM | {"policy": {"sampling": "gaussian"}, "solver": {"population": 4}},
    PENDULUM | {"noise": {"kind": "low_rank", "size": 20_000}, "solver": {"population": 4}},
    SPHERE | {"solver": {"kind": "cma_es"}},
    SPHERE | {"solver": {"kind": "cr_fm_nes"}},
    SPHERE | {"solver": {"kind": "deep_ga", "population": 10, "parents": 3}},
    SPHERE | {"solver": {"kind": "pgpe", "population": 6}},
    SPHERE | {"solver": {"kind": "own_solver.py:Climb"}},
    {"environment": {"id": "own_env.py:Env", "max_steps": 5}, "solver": {"population": 4}},
    {"environment": {"id": "own_function.py:f", "dimension": 3}, "solver": {"population": 4}},
    {"environment": {"id": "own_env.py:Env", "adaptive": {"start": 3}}, "solver": {"population": 4}},
    {"environment": {"id": "LQR-v0", "max_steps": 5}, "solver": {"population": 4}},
]
OWN_FILES = {
    "own_env.py": """
import gymnasium, numpy as np, sys
class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    def __init__(self, **kwargs):
        self.count = 0
    def reset(self, seed=None, options=None):
        self.count = 0
        self.random = np.random.default_rng(seed)
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
""",
    "own_function.py": "def f(x):\n    return -float((x * x).sum())\n",
    "own_solver.py": """
from mpies.solvers.openai_es import OpenAIES
class Climb(OpenAIES):
    pass
""",
}


class Key(NamedTuple):
    """A key: its path, the kinds that its sections must have (paths and values), and its field."""

    path: list[str]
    kinds: list[tuple[list[str], str]]
    field: FieldInfo


def all_keys() -> list[Key]:
    keys = []
    for path, _, model in walk_sections():
        sections: list[str] = []
        kinds = []
        for part in filter(None, path.split(".")):
            name, _, kind = part.partition(" (kind: ")
            sections.append(name)
            if kind:
                kinds.append(([*sections, "kind"], kind.rstrip(")")))
        keys += [Key([*sections, key], kinds, field) for key, field in model.model_fields.items()]
    return keys


KEYS = all_keys()


def plausible(r: Random, field: FieldInfo) -> Any:
    """A value of the type that a key has."""
    if get_origin(field.annotation) is Literal:
        return r.choice(get_args(field.annotation))
    text = str(field.annotation)
    if "list" in text:
        return [r.randint(0, 9) for _ in range(r.randint(0, 3))]
    if "bool" in text:
        return r.choice([True, False])
    if "int" in text:
        return r.choice([1, 2, 3, 4, 6, 10, 20])
    if "float" in text:
        return r.choice([0, 0.01, 0.1, 0.5, 1, 2, 10])
    return r.choice([None, r.choice(TEXTS)])


def find(config: Values, path: Sequence[str]) -> Any:
    """The value of a key; None where it is absent."""
    found: Any = config
    for part in path:
        found = found.get(part) if isinstance(found, dict) else None
    return found


def put(config: Values, path: Sequence[str], new: Any) -> None:
    """Set a key, and make its sections where they are absent."""
    for part in path[:-1]:
        if not isinstance(config.get(part), dict):
            config[part] = {}
        config = config[part]
    config[path[-1]] = new


def misspell(r: Random, key: str) -> str:
    place = r.randrange(max(1, len(key)))
    return r.choice(
        [key[:place] + key[place + 1 :], key[:place] + r.choice(string.ascii_letters) + key[place:], key * 2]
    )


def change(r: Random, config: Values) -> None:
    """One change of a config: another value, a key that is absent, unknown or of another section."""
    path, kinds, field = r.choice(KEYS)
    what = r.random()
    if what < 0.85:
        if r.random() < 0.8:
            for place, kind in kinds:
                if find(config, place) != kind:
                    put(config, place[:-1], {"kind": kind})
        kind = r.random()
        put(config, path, plausible(r, field) if kind < 0.75 else value(r) if kind < 0.9 else whole_number(r))
    elif what < 0.9:
        section = find(config, path[:-1]) if path[1:] else config
        if isinstance(section, dict):
            section.pop(path[-1], None)
    elif what < 0.95:
        put(config, [*path[:-1], misspell(r, path[-1])], value(r))
    else:
        config[path[0]] = value(r)


def make_config(r: Random, changes: int) -> Values:
    config: Values = json.loads(json.dumps(SMALL | r.choice(BASES)))
    for _ in range(changes):
        change(r, config)
    return config


def as_text(config: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(config), allow_unicode=False, default_flow_style=None)


def damage(r: Random, text: str) -> str | bytes:
    """A text with some characters changed, or something that is no config at all."""
    what, place = r.random(), r.randrange(len(text) + 1)
    if what < 0.3:
        return text[:place]
    if what < 0.7:
        return (
            text[:place]
            + r.choice(["\t", ":", "{", "]", "-", "'", "#", "\n", "&a ", "*a", "!!", "\x00", "?"])
            + text[place:]
        )
    if what < 0.8:
        return bytes(r.randrange(256) for _ in range(r.randint(0, 300)))
    return r.choice(
        [
            *(
                "",
                "[]",
                "5",
                "a",
                "null",
                "---\n---\n",
                "a: b: c",
                "environment: &x {id: *x}",
                "[" * 3000,
                "{a: " * 500,
            ),
            *("environment: !!python/object/apply:os.getcwd []", "environment: {id: !!binary YQ==}", "? [1]\n: 2\n"),
            *(
                "a: &a [x]\n" + "".join(f"{n}: &b{n} [*a, *a]\n" for n in range(9)),
                "environment: {<<: 5}",
                "1: 2",
                "seed: 0777",
            ),
            *(
                "environment: !!set {id}",
                "environment: !!timestamp 2020-99-99",
                "seed: 1__0",
                "seed: 190:20:30",
                "x: .e5",
            ),
        ]
    )


def override(r: Random) -> str:
    if r.random() < 0.1:
        return r.choice(
            ["", "=", "x", "=1", "a=", ".=1", "a..b=1", "seed", "environment.=x", "noise=", "seed=[", "a.b.c.d=1"]
        )
    path, _, field = r.choice(KEYS)
    key = ".".join(path) if r.random() < 0.9 else misspell(r, ".".join(path))
    kind = r.random()
    new = plausible(r, field) if kind < 0.6 else r.choice(TEXTS) if kind < 0.8 else value(r)
    return f"{key}={new}"


# Command lines


def config_file(r: Random) -> tuple[str, dict[str, str | bytes]]:
    """The path of a config and the files that it needs; seldom a path that is none."""
    if r.random() < 0.05:
        return r.choice(["absent.yaml", ".", "run", "run/metrics.csv", "a" * 300 + ".yaml", "x\ud800", ""]), {}
    text: str | bytes = as_text(make_config(r, r.choice([0, 1, 1, 1, 1, 2, 2, 3, 5])))
    if r.random() < 0.08:
        text = damage(r, str(text))
    return "c.yaml", {"c.yaml": text, **OWN_FILES}


def check(r: Random) -> Case:
    path, files = config_file(r)
    return Case(["check", path, *(override(r) for _ in range(r.choice([0, 0, 0, 1, 2])))], files)


def train(r: Random) -> Case:
    path, files = config_file(r)
    words = [override(r) for _ in range(r.choice([0, 0, 0, 1, 2]))]
    if r.random() < 0.12:
        words += [
            "--out",
            r.choice(["run", "damaged", "x", "/dev/null", "/proc/x", "c.yaml", "o" * 300, "a/b", ".", ""]),
        ]
    if r.random() < 0.1:
        words += [
            r.choice(["--resume", "--seeds", "--log-format"]),
            r.choice(["never", "must", "2", "1..2", "x", "json", ""]),
        ]
    return Case(["train", path, *words, "stop.grace=0"], files)


def policy(r: Random) -> str:
    if r.random() < 0.6:
        return "run"
    return r.choice(
        ["run", "run/best.h5", "run/policy.h5", "damaged", "damaged/best.h5", "absent", ".", r.choice(TEXTS)]
    )


PATHS = [
    "x.png",
    "x.csv",
    "x.npz",
    "x.py",
    "x.onnx",
    "x.mp4",
    "x",
    "absent/x.npz",
    "/dev/null/x.npz",
    "run",
    "o" * 300 + ".npz",
]
NUMBERS = ["0", "1", "2", "3", "-1", "x", "", "1e3", "99999999999999999999", "1.5", "nan", "inf"]
# Commands whose plausible use takes minutes or starts other processes: (arguments that are always there, share).
LEFT_OUT = {"dashboard", "doctor", "verify", "bench", "reproduce", "probe"}


def argument(r: Random, name: str) -> str:
    """A value for the option or argument of this name."""
    if name in ("run", "runs", "policy"):
        return policy(r)
    if name in ("out", "to", "plot", "video", "constants", "base"):
        return r.choice([*PATHS, *PATHS, r.choice(TEXTS)])
    if name == "task":
        return r.choice(
            ["c.yaml", "1000,16,0.1,0.5", "1,1,1,1", "0,0,0,0", "1,2,3", "nan,1,1,1", "1e30,8,1,1", "a,b,c,d", ""]
        )
    if name == "ranks":
        return r.choice(
            ["1,2,36", "1..100", "5..1", "0", "x", "1..", "..", "1,,2", "99999999999999999999", "1..1e9", ""]
        )
    if name == "member":
        return r.choice(["1,0", "2,3", "99,0", "1,99999999999999999999", "0,0", "1", "x,y", "", "1,-1"])
    if r.random() < 0.6:
        return str(r.randint(1, 4))
    return r.choice([*NUMBERS, r.choice(TEXTS)])


def any_command(r: Random) -> Case:
    """A command with random options and arguments, on a run, a damaged one, or nothing."""
    files: dict[str, str | bytes] = {}
    name = r.choice([name for name in mpies.commands if name not in LEFT_OUT | {"train", "check"}])
    command: Any = mpies.commands[name]
    words = [name]
    if name == "launch":
        name = r.choice(sorted(command.commands))
        command = command.commands[name]
        words += [name, "--dry-run"]
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            if parameter.name == "overrides":
                words += [override(r) for _ in range(r.choice([0, 0, 0, 1]))]
            elif parameter.name == "config":
                path, more = config_file(r)
                words, files = [*words, path], files | more
            else:
                words += [argument(r, parameter.name) for _ in range(r.choice([0, *[1] * 9, 2]))]
        elif parameter.required or r.random() < 0.15:
            words.append(parameter.opts[0])
            if not parameter.is_flag:
                words.append(argument(r, parameter.name))
    if r.random() < 0.05:
        words.insert(
            r.randrange(len(words)), r.choice(["--no-such-option", "-x", "--", "--out", "--help", r.choice(TEXTS)])
        )
    if words[0] == "play" and "--video" not in words:  # a window would open
        words += ["--video", argument(r, "video")]
    if "c.yaml" in words and "c.yaml" not in files:
        files["c.yaml"] = as_text(make_config(r, 0))
    return Case(words, files)


def slow_command(r: Random) -> Case:
    """A wrong use of the commands that would start other processes, or measure."""
    path, files = config_file(r)
    return r.choice(
        [
            Case(["verify", "absent.yaml"], {}),
            Case(["verify", path, "--ranks", r.choice(["0", "x", "", "1,0", "-1"])], files),
            Case(["verify", path, "--generations", r.choice(["0", "x", "-1"])], files),
            Case(["reproduce", r.choice(["absent", "", "../x", *TEXTS])], {}),
            Case(["reproduce", *r.choice([["--list"], ["--ranks", "0"], ["--generations", "x"], []])], {}),
            Case(["bench", "absent.yaml"], {}),
            Case(["bench", "--repeats", r.choice(["0", "x"])], {}),
            Case(["doctor", "absent.yaml"], {}),
            Case(["doctor", "--out", r.choice(["absent", "c.yaml", "o" * 300])], files),
            Case(["dashboard", r.choice(["absent", "c.yaml", "o" * 300])], files),
            Case(["dashboard", ".", "--port", r.choice(["99999", "x", "-1"])], {}),
            Case(["dashboard", ".", "--host", r.choice(["999.1.1.1", "no such host", "a" * 300]), "--port", "0"], {}),
            Case(["probe", r.choice(TEXTS), "--episodes", "0", "--steps", "5"], OWN_FILES),
            Case(["probe", path, "--episodes", r.choice(["0", "x"]), "--steps", r.choice(["3", "0"])], files),
            Case(["train", path, "--ranks", r.choice(["0", "x", "-1"])], files),
            Case([r.choice(["", "tain", "--version", "-h", "--", r.choice(TEXTS)])], {}),
            Case([], {}),
        ]
    )


def make_case(number: int) -> Case:
    """The case of this number."""
    r = Random(number)
    kind: Callable[[Random], Case] = r.choices([check, train, any_command, slow_command], [45, 35, 17, 3])[0]
    case = kind(r)
    return Case([as_argument(word) for word in case.arguments], case.files)


def as_argument(word: str) -> str:
    """The word as the system hands it to a process: without NUL, and with bytes that are no character."""
    return word.replace("\x00", "").replace("\ud800", "\udcff")


# Running a case


def prepare(folder: Path) -> None:
    """A run of a few generations below `folder`, and one that is damaged."""
    (folder / "run.yaml").write_text(as_text(make_config(Random(0), 0) | CARTPOLE | {"solver": {"population": 8}}))
    command = [
        sys.executable,
        "-m",
        "mpies",
        "train",
        "run.yaml",
        "--out",
        "run",
        "stop.generations=4",
        "evaluation.every=2",
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env={**os.environ, "MPIES_PICTURES": "0"})
    shutil.copytree(folder / "run", folder / "damaged")
    r = Random(0)
    for path in sorted((folder / "damaged").rglob("*")):
        if path.is_file() and path.name != "config.yaml":
            content = bytearray(path.read_bytes())
            content[r.randrange(len(content))] ^= 255
            path.write_bytes(content[: r.randint(len(content) // 2, len(content))])


def write_files(case: Case, folder: Path, runs: Path) -> None:
    words = " ".join(case.arguments) + str(case.files.get("c.yaml"))
    for name in ("run", "damaged"):
        if name in words:
            shutil.copytree(runs / name, folder / name)
    for name, content in case.files.items():
        data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape")
        (folder / name).write_bytes(data)


@contextlib.contextmanager
def captured(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Standard output and error of this process, and of its libraries, go to the two files."""
    paths = folder / "stdout", folder / "stderr"
    kept = [os.dup(1), os.dup(2)]
    for number, path in enumerate(paths, 1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    try:
        yield paths
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, file in enumerate(kept, 1):
            os.dup2(file, number)
            os.close(file)


class Watch:
    """Stops training after LIMIT, and ends the process where a case hangs."""

    def __enter__(self) -> None:
        self._began = time.monotonic()
        signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, LIMIT, LIMIT)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def _look(self, *_: object) -> None:
        if callable(signal.getsignal(signal.SIGUSR1)):  # training has begun
            os.kill(os.getpid(), signal.SIGUSR1)
        if time.monotonic() - self._began > HANGS:
            faulthandler.dump_traceback()
            os._exit(99)


def run_case(number: int, runs: Path, folder: Path) -> Ending:
    """Run a case in this process.  runs: where `prepare` has made the runs.  folder: to run it in, which is made."""
    case = make_case(number)
    folder.mkdir()
    write_files(case, folder, runs)
    environment = dict(os.environ)
    os.chdir(folder)
    with tempfile.TemporaryDirectory() as outputs, captured(Path(outputs)) as paths, Watch():
        try:
            mpies(case.arguments, prog_name="mpies")
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            code = 1
            import traceback

            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        stdout, stderr = (path.read_bytes().decode("utf-8", "replace") for path in paths)
    os.chdir("/")
    os.environ.clear()
    os.environ.update(environment)
    logging.getLogger().handlers.clear()
    shutil.rmtree(folder, ignore_errors=True)
    command = case.arguments[0] if case.arguments and case.arguments[0] in mpies.commands else "(none)"
    return Ending(number, command, code, find_problem(code, stdout, stderr), f"{stdout}\n{stderr}"[-5000:])


LOG_LINE = re.compile(r"(DEBUG|INFO|WARNING|ERROR) rank \d+: |\{\"severity\": \"(?!ERROR)")


def find_problem(code: int, stdout: str, stderr: str) -> str:
    """What is wrong with how a command ended, '' if nothing."""
    both = stdout + stderr
    if "Traceback (most recent call last)" in both:
        last = [line for line in stderr.splitlines() if line and not line[0].isspace()]
        return f"traceback: {last[-1] if last else ''}"
    if code not in CODES:
        return f"exit code {code}"
    if found := re.search(r"[^\n\t -~\x80-\U0010ffff]|[\x80-\x9f\u2028\u2029]", both):
        return f"control character {found[0]!r}"
    if stderr.startswith("Usage: "):  # of a group without a command
        return ""
    lines = [line for line in stderr.splitlines() if line and not LOG_LINE.match(line)]
    lines = [f"mpies: {json.loads(line)['message']}" if line.startswith("{") else line for line in lines]
    if code == 2 and len(lines) != 1:
        return f"{len(lines)} lines where one was expected"
    if code == 2 and not lines[0].startswith("mpies: "):
        return "a mistake that is not explained by mpies"
    if code != 2 and (odd := [line for line in lines if not line.startswith("mpies: ")]):
        return f"on standard error: {odd[0]}"
    return ""


# The processes


def work(first: int, last: int, runs: Path, folder: Path) -> None:
    """Run the cases first .. last-1 and print an Ending of each as JSON."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    results = os.fdopen(os.dup(1), "w")
    limit_threads()
    for number in range(first, last):
        print(number, file=results, flush=True)
        print(json.dumps(run_case(number, runs, folder / str(number))), file=results, flush=True)


def run_batch(first: int, last: int, runs: Path, folder: Path) -> list[Ending]:
    """The Endings of the cases first .. last-1, whatever happens to the processes that run them."""
    endings: list[Ending] = []
    while first + len(endings) < last:
        start = first + len(endings)
        command = [sys.executable, __file__, "--work", str(start), str(last), str(runs), str(folder)]
        with tempfile.TemporaryFile("w+") as errors:
            environment = {**os.environ, "MPIES_PICTURES": "0", "MPLBACKEND": "agg"}
            worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
            assert worker.stdout
            selector = selectors.DefaultSelector()
            selector.register(worker.stdout, selectors.EVENT_READ)
            while selector.select(3 * HANGS):
                line = worker.stdout.readline()
                if not line:
                    break
                if line.startswith("["):
                    endings.append(Ending(*json.loads(line)))
            worker.kill()
            code = worker.wait()
            errors.seek(0)
            if (number := first + len(endings)) < last:
                problem = "hangs" if code == 99 else f"its process ended with code {code}"
                endings.append(Ending(number, make_case(number).arguments[0], code, problem, errors.read()[-5000:]))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    return endings


def show_case(number: int) -> None:
    case = make_case(number)
    print(f"mpies {shlex.join(case.arguments)}\n")
    if "c.yaml" in case.files:
        print(case.files["c.yaml"])


def table(endings: Sequence[Ending]) -> str:
    """How many cases of each command ended with each exit code."""
    counts = collections.Counter((ending.command, ending.code) for ending in endings)
    lines = ["command      " + "".join(f"{code:>8}" for code in CODES) + f"{'failed':>8}"]
    for command in sorted({ending.command for ending in endings}):
        failed = sum(bool(ending.problem) for ending in endings if ending.command == command)
        lines.append(f"{command:<13}" + "".join(f"{counts[command, code]:>8}" for code in CODES) + f"{failed:>8}")
    return "\n".join(lines)


def main() -> None:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="+", metavar="N")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(errors="backslashreplace")
    if options.work:
        first, last, runs, folder = options.work
        work(int(first), int(last), Path(runs), Path(folder))
        return
    began, endings = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="mpies-fuzz-") as place:
        runs, folder = Path(place, "runs"), Path(place, "cases")
        runs.mkdir()
        folder.mkdir()
        prepare(runs)
        last = options.first + options.cases
        batches = [(n, min(n + BATCH, last)) for n in range(options.first, last, BATCH)]
        batches = [(n, n + 1) for n in options.only] if options.only else batches
        for first, stop in batches:
            endings += run_batch(first, stop, runs, folder)
            for ending in endings[-(stop - first) :]:
                if ending.problem and not options.only:
                    print(f"{ending.number}: {ending.command}: {ending.problem}", flush=True)
    if options.only:
        for ending in endings:
            show_case(ending.number)
            print(f"{ending.output.strip()}\n\nexit code {ending.code}; {ending.problem or 'as it should be'}\n")
        return
    seconds = time.monotonic() - began
    failed = [ending for ending in endings if ending.problem]
    print(f"{table(endings)}\n{len(endings)} cases, {len(failed)} failed, {seconds:.0f} s")
    if options.json:
        outcomes = collections.Counter(f"{ending.command} {ending.code}" for ending in endings)
        kept = {"cases": len(endings), "first": options.first, "failed": len(failed), "seconds": round(seconds)}
        options.json.write_text(json.dumps({**kept, "outcomes": dict(sorted(outcomes.items()))}, indent=1) + "\n")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
