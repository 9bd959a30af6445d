"""Campaigns of faults.py on files: damage, errors of the system, runs and policies of strangers, odd names.

Each yields (right, "FILE OPERATION: what happened") for a trial.  Commands run in this process, and some in one of
their own.  Right: no traceback, always an end, no code of what is only looked at, a refusal in one line that changes
nothing, and success only where every row and digest is there.
"""

import contextlib
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from click.testing import CliRunner

import mpies
from mpies.cli.main import main as command_line
from mpies.core.errors import UserError
from mpies.report.web.run_index import RunIndex
from mpies.runs import lock
from mpies.runs.files import pack_checked
from mpies.runs.formats import hdf5, ledger
from mpies.runs.formats.metrics import read_metrics

CONFIG, SHIM = str(Path(__file__).with_name("faults.yaml")), Path(__file__).with_name("fault_shim.c")
FEW = ["solver.population=6", "environment.max_steps=12", "policy.hidden=[3]", "noise.size=20000"]
FEW += ["evaluation={every: 2, episodes: 3}", "checkpoint.every=3"]
TRAIN = ["train", CONFIG, *FEW]
LIMIT = 150  # seconds of a command
Trials = Iterator[tuple[bool, str]]


class OverdueError(BaseException):
    """A command has not ended in time."""


def _too_late(_number: int, _frame: object) -> None:
    raise OverdueError


def call(*words: object, apart: bool = False, **variables: str) -> tuple[str, int, str]:
    """Run `mpies` with these words: what is wrong with how it ended, or '', its exit code and its output.

    apart: in a process of its own.  variables: of its environment.
    """
    arguments = [str(word) for word in words]
    signal.signal(signal.SIGALRM, _too_late)
    signal.alarm(LIMIT)
    os.environ.update(variables)
    try:
        if apart:
            command: list[str] = [sys.executable, "-m", "mpies", *arguments]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
            code, output, errors = done.returncode, done.stdout, done.stderr
        else:
            result = CliRunner().invoke(command_line, arguments, catch_exceptions=False)
            code, output, errors = result.exit_code, result.stdout, result.stderr
    except OverdueError:
        return "never ends", -1, ""
    except Exception:
        code, output, errors = 1, "", traceback.format_exc()
    finally:
        signal.alarm(0)
        os.environ.update(dict.fromkeys(variables, ""))
    wrong = "ran code" if Path("has-run").exists() else ""
    if "Traceback (most" in errors:
        wrong = f"traceback: {errors[-700:]}"
    elif code and not output and not any(line.startswith(("mpies: ", "ERROR")) for line in errors.splitlines()):
        wrong = f"no reason: {errors[-200:]!r}"
    return wrong, code, output + errors


def facts(run: Path) -> dict[str, tuple[str | None, ...]]:
    """What metrics.csv says of each generation, without what differs from run to run."""
    names = ("digest", "steps", "return_mean", "eval_mean", "eval_episodes", "sigma")
    return {row["generation"]: tuple(row.get(name) for name in names) for row in read_metrics(run)}


def files(folder: Path) -> dict[Path, bytes]:
    """The files below a folder that nobody may change who only looks."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".lock", ".png"))
    return {path: path.read_bytes() for path in found}


def look(run: Path) -> str:
    """Read a run as the page and `mpies.load` do: what went wrong, or ''."""
    signal.alarm(LIMIT)
    reads = (lambda r: dict(r.metrics), lambda r: r.config, lambda r: r.status, lambda r: r.best(np.zeros(4)))
    try:
        index = RunIndex(run.parent)
        json.dumps([index.summaries(), index.read_update(run.name)], default=str)
        for read in reads:
            with contextlib.suppress(UserError):
                read(mpies.load(run))
    except (OverdueError, Exception):
        return f"load: {traceback.format_exc()[-700:]}"
    finally:
        signal.alarm(0)
    return ""


def train(out: Path, generations: int) -> Path:
    """A run that is trained without any fault."""
    wrong, code, output = call(*TRAIN, f"stop.generations={generations}", "--out", out)
    assert not wrong and code == 0, output
    return out


def damage_trials(folder: Path, trials: int, draw: random.Random) -> Trials:
    """Flip a bit of a file of a run or a sweep, or cut it off; look at it, then go on with it."""
    lock.HEARTBEAT = 0.05  # a damaged lock is looked at twice
    goal, run, base = facts(train(folder / "goal", 16)), train(folder / "run", 8), folder / "sweep"
    (run / "writer.json").write_bytes(pack_checked({**lock.Lock(run)._owner, "host": "gone", "beat": 1.0}))
    vary = ["sweep", CONFIG, *FEW, "solver.sigma=0.1,0.2", "--seeds", 2, "--out"]
    call(*vary, folder / "wanted", "stop.generations=6")
    call(*vary, base, "stop.generations=4")
    trials_of = {True: lambda path: {one.name: facts(one) for one in path.glob("sigma*")}, False: facts}
    wanted = {True: trials_of[True](folder / "wanted"), False: goal}
    for number in range(trials):
        is_sweep, out = number % 3 == 2, folder / "hurt"
        shutil.copytree(base if is_sweep else run, out)
        file = draw.choice([path for path, content in sorted(files(out).items()) if content])
        content, how = bytearray(file.read_bytes()), draw.choice(["flip", "cut"])
        place = draw.randrange(len(content))
        content[place] ^= 1 << draw.randrange(8) if how == "flip" else 0
        file.write_bytes(content[:place] if how == "cut" else content)
        watched, apart = files(out), number % 25 == 0
        looks = [("report", out, "--out", "r.html"), ("plot", out), ("compare", out), ("runs", folder)]
        wrong = call(*looks[number % 4], apart=apart)[0] or look(out)
        if file.suffix == ".h5" and file.parent.name != "checkpoints" and call("evaluate", file)[1] != 2:
            wrong = wrong or "a damaged policy is played"
        if files(out) != watched:
            wrong = wrong or "looking at it has changed it"
        go_on = [*vary, out, "stop.generations=6"] if is_sweep else [*TRAIN, "stop.generations=16", "--out", out]
        ended, code, output = call(*go_on, apart=apart)
        is_said = "WARNING" in output and (file.name in output or [*out.rglob("*.damaged-*")])
        if code == 0 and trials_of[is_sweep](out) != wanted[is_sweep] and not is_said:
            wrong = wrong or "rows are lost without a word"
        if code == 2 and not is_sweep and files(out) != watched:
            wrong = wrong or "refused, but something was written"
        wrong = wrong or ended
        parts = ["TRIAL" if part.startswith("sigma") else part for part in file.relative_to(out).parts]
        name = "/".join("generation-N.h5" if "generation-" in part else part for part in parts)
        yield not wrong, f"{name} {how}: byte {place}, exit {code}; {f'{wrong}; {output[-400:]}' if wrong else ''}"
        shutil.rmtree(out)


def error_trials(folder: Path, trials: int, draw: random.Random) -> Trials:
    """Have the system refuse reads and writes of a file, then run the same command without that."""
    goal, run, out = facts(train(folder / "goal", 14)), train(folder / "run", 8), folder / "hurt"
    names = ["config.yaml", "metrics.csv", "evaluations.csv", "ledger.bin", "best.h5", "policy.h5", "generation-0"]
    names += ["finished.yaml", "log.txt", "writer.json", "ranks.json", "hurt"]
    kinds = {"openr": "EIO ESTALE EACCES", "read": "EIO ESTALE", "openw": "EIO ENOSPC ESTALE", "write": "EIO ENOSPC"}
    kinds |= {"half": "ENOSPC EDQUOT", "short": "EIO", "fsync": "EIO ENOSPC", "rename": "EIO", "unlink": "EIO"}
    trains = [*TRAIN, "stop.generations=14", "--out", out]
    commands: dict[str, list[Any]] = {"new": trains, "resume": trains, "report": ["report", out, "--out", "r.html"]}
    commands |= {"compare": ["compare", out], "evaluate": ["evaluate", out, "--episodes", 2], "runs": ["runs", out]}
    commands |= {"export": ["export", out, "--to", "x.npz"]}
    commands["sweep"] = ["sweep", CONFIG, *FEW, "solver.sigma=0.1,0.2", "stop.generations=3", "--out", out]
    for number in range(trials):
        operation, name, command = (draw.choice(sorted(one)) for one in (kinds, names, [*commands, "resume", "new"]))
        kind, first, count = (
            draw.choice(kinds[operation].split()),
            draw.choice([0, 0, 1, 4]),
            draw.choice([1, 3, 10**6]),
        )
        words = commands[command]
        if command not in ("new", "sweep"):
            shutil.copytree(run, out)
        fault = f"{operation},{name},{getattr(errno, kind)},{first},{count}"
        wrong, code, output = call(*words, apart=number % 10 == 0, FAULT=fault)
        is_whole = words is not trains or (facts(out) == goal and (out / "finished.yaml").exists())
        wrong = wrong or ("false success" if code == 0 and not is_whole else "")
        (out / "writer.json").unlink(missing_ok=True)  # its process, this one, is alive
        again, later, text = call(*words)
        if not again and (later or (words is trains and facts(out) != goal)):
            again = f"the same command does not mend it: exit {later}, {text[-300:]}"
        if not again and code == 0 and command in ("evaluate", "export", "compare", "runs") and output != text:
            again = f"another result: {output!r} and {text!r}"
        wrong = wrong or again
        shown = f"{fault}; {wrong}; {output[-300:]}" if wrong else ""
        yield not wrong, f"{name} {operation}: {kind}, {command}, exit {code}; {shown}"
        shutil.rmtree(out, ignore_errors=True)


def restart_with_shim() -> None:
    """Start this program again with the library that refuses reads and writes."""
    library = Path(tempfile.mkdtemp(prefix="mpies-shim-")) / "shim.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SHIM, "-ldl"], check=True)
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"LD_PRELOAD": str(library)})


ODD: dict[str, list[Any]] = {  # dotted keys of a config to values of strangers
    "environment.id": ["os:system", "evil.py:make", "evil:make", "gymnasium:evil:X-v0", "GymV21Environment-v0", "a\nb"],
    "policy": [{"kind": "torch", "module": "evil.py:make"}, None],
    "solver": [{"kind": "evil.py:make"}, {"kind": "evil:make"}, {"kind": "x", "population": 10**12}],
    "solver.population": [10**12, "?"],
    "seed": ["9" * 5000, "2024-13-45", -1],
    "environment.kwargs": [{"a": ["x"] * 9}, 7],
    "policy.hidden": [[10**9], [0], "x"],
    "environment": [None, []],
    "stop.target": [float("nan"), float("inf")],
}
ALIASES = "".join(f"{b}: &{b} [{f'*{a}, ' * 9}]\n" for a, b in zip("abcdefghi", "bcdefghij", strict=True))


def configs(text: str) -> Iterator[tuple[str, str]]:
    """Texts of a config that strangers may send, each with what it is.  text: a good one."""
    for key, values in ODD.items():
        for value in values:
            copy = yaml.safe_load(text)
            section, _, last = key.rpartition(".")
            (copy[section] if section else copy)[last] = value
            yield f"{key} {str(value)[:30]!r}", yaml.safe_dump(copy, sort_keys=False)
    yield "nested", text + "deep: " + "[" * 20_000
    yield "aliases", f"{text}a: &a [1]\n{ALIASES}"
    yield "python", text + "x: !!python/object/apply:os.system ['touch has-run']\n"
    yield "no text", "\1\xff\n"


def _make_evil() -> None:
    code = "open('has-run', 'w').close()\n"
    Path("evil.py").write_text(f"{code}def make(*a, **k):\n    {code}")


def run_trials(folder: Path, trials: int, draw: random.Random) -> Trials:
    """Run directories of strangers beside a good one: every command that looks, the page, and going on with them."""
    _make_evil()
    good, bad = train(folder / "top" / "good", 6), folder / "top" / "bad"
    rows, first = (good / "metrics.csv").read_bytes(), "checkpoints/generation-00000000.h5"
    cases: list[Any] = [("config.yaml", *case) for case in configs((good / "config.yaml").read_text())]
    tables = [
        b"generation," * 10**5,
        rows.replace(b"\n1,", b"\nnan,"),
        rows.replace(b"\n2,", b"\n" + b"9" * 5000 + b","),
    ]
    tables += [rows.replace(b"sigma", b"<script>x</script>\x1b[2J"), rows + rows, rows.replace(b"\n3,", b"\n-1,")]
    cases += [("metrics.csv", number, table) for number, table in enumerate(tables)]
    for head in ('["generation","|O",[]]', '["generation","<i8",[99999999999]]', "", '["generation","|S4",[]]', "[[]]"):
        body = f"[{head}]\nabcdefgh".encode()
        cases.append(("ledger.bin", head, ledger._HEAD.pack(ledger.MAGIC, len(body), zlib.crc32(body)) + body))
    cases += [
        ("writer.json", 1, '{"beat": Infinity}'),
        ("writer.json", 2, "[" * 10**5),
        ("finished.yaml", 1, "reason: [x]"),
    ]
    cases += [
        (name, kind, None) for name in ("metrics.csv", "ledger.bin", "best.h5") for kind in ("dir", "pipe", "link")
    ]
    arrays, attributes = hdf5.read(good / first)
    for name in ("solver/mean", "clock/generation", "normalizer/count"):
        cases.append((first, name, hdf5.pack(arrays | {name: np.zeros(2, "S3")}, attributes)))
    draw.shuffle(cases)
    bystander = folder / "bystander"  # a file of the user's, which no command may write
    bystander.write_text("mine")
    commands = [("runs", "top"), ("compare", good, bad), ("report", bad, "--out", "r.html"), ("plot", bad)]
    commands += [("evaluate", bad, "--episodes", 1), ("export", bad, "--to", "x.npz")]
    commands += [("replay", bad, "--generation", 3), ("play", bad, "--member", "2,1"), ("check", bad / "config.yaml")]
    commands += [("plot", bad, "--trajectory", "--grid", 3, "--episodes", 1)]
    commands += [("play", bad, "--video", "x.gif"), (*TRAIN, "stop.generations=7", "--out", bad)]
    for number, (name, what, content) in enumerate(cases[:trials]):
        shutil.copytree(good, bad)
        (bad / name).unlink(missing_ok=True)
        if content is None:
            make = {"dir": Path.mkdir, "pipe": os.mkfifo, "link": lambda path: path.symlink_to(bystander)}[what]
            make(bad / name)
        else:
            (bad / name).write_bytes(content.encode("latin-1") if isinstance(content, str) else content)
        wrong = [("look", found)] if (found := look(bad)) else []
        if not any(one["name"] == "good" and one["state"] == "finished" for one in RunIndex(good.parent).summaries()):
            wrong.append(("page", "the good run is not listed"))
        apart = number % 10 == 0
        wrong += [(words[0], found) for words in commands if (found := call(*words, apart=apart and "top" in words)[0])]
        if bystander.read_text() != "mine":
            wrong.append(("link", "it was written through"))
        yield not wrong, f"{name} {str(what)[:30]}: {wrong or 'read or refused'}"
        shutil.rmtree(bad)
        Path("has-run").unlink(missing_ok=True)


def policy_trials(folder: Path, trials: int, draw: random.Random) -> Trials:
    """Policy files of strangers: evaluate, play, export, load."""
    _make_evil()
    arrays, attributes = hdf5.read(train(folder / "good", 4) / "best.h5")
    cases = [("config", what, arrays, attributes | {"config": text}) for what, text in configs(attributes["config"])]
    odd: list[Any] = [
        np.array([b"x"] * 3),
        np.zeros(0, np.float32),
        np.zeros((2, 10**5), np.float32),
        np.float32(np.nan),
    ]
    for name in arrays:
        cases += [(name, number, arrays | {name: value}, attributes) for number, value in enumerate(odd)]
        cases.append((name, "none", {key: value for key, value in arrays.items() if key != name}, attributes))
    for name in attributes:
        cases += [
            (name, repr(value), arrays, attributes | {name: value}) for value in (np.nan, b"\xff\xfe", [1, 2], -1)
        ]
        cases.append((name, "none", arrays, {key: value for key, value in attributes.items() if key != name}))
    draw.shuffle(cases)
    file = folder / "x.h5"
    commands = [("evaluate", file), ("play", file, "--video", "x.gif")]
    commands += [("export", file, "--to", f"x{ending}") for ending in (".npz", ".py", ".onnx")]
    for number, (name, what, held, named) in enumerate(cases[:trials]):
        file.write_bytes(hdf5.pack(held, named))
        wrong = [(words[0], found) for words in commands if (found := call(*words, apart=number % 10 == 0)[0])]
        try:
            with contextlib.suppress(UserError):
                mpies.Policy.load(file)(np.zeros(4))
        except Exception:
            wrong.append(("load", traceback.format_exc()[-700:]))
        yield not wrong, f"{name} {str(what)[:40]}: {wrong or 'used or refused'}"
        Path("has-run").unlink(missing_ok=True)


NAMES = [*("a b", "a'b", 'a"b', "$(touch has-run)", "`touch has-run`", "a;touch has-run", "a&b", "a|b", "a\rb", "a\tb")]
NAMES += [*("a\ntouch has-run\n#", "-rf", "--x", "ünïcode-名", "a" * 200, "a\\b", "a%b", "a#b", "a: b", "{a}", "*")]
NAMES += [*("~", "!a", "${HOME}", "a\u2028b", "a\x1b[2J", "@a", "a,b", "a=b", "'", "null", "1e3", "a\x85b")]


def name_trials(folder: Path, trials: int, draw: random.Random) -> Trials:
    """Odd names of configs, runs, accounts, images and values in batch scripts, which bash reads, and in manifests."""
    library = (Path(__file__).parent.parent / "slurm/train.sh").read_text().rstrip("\n")
    places = [f"slurm {place}" for place in ("config", "--out", "--account", "--partition", "value")]
    places += [f"k8s {place}" for place in ("config", "--out", "--image", "value")]
    both = [(name, place) for name in NAMES for place in places]
    draw.shuffle(both)
    for name, place in both[:trials]:
        kind, _, option = place.partition(" ")
        config = folder / f"{name if option == 'config' else 'c'}.yaml"
        config.write_text("environment: {id: CartPole-v1}\n")
        words = ["launch", kind, str(config), "--dry-run", *(["--time=1:00:00"] if kind == "slurm" else [])]
        words += [] if option == "--out" else [f"--out={folder}/job"]
        words += [f"{option}={name}"] if option.startswith("--") else []
        words += [f"tracking={{wandb: {{project: {json.dumps(name)}}}}}"] if option == "value" else []
        wrong, code, output = call(*words)
        made = [path for path in folder.rglob("*.yaml") if path != config] + [*folder.rglob("*.sbatch")]
        for path in made:
            if path.suffix == ".yaml":
                list(yaml.safe_load_all(path.read_text()))
            else:
                said = path.read_text().replace(library, "train() { printf '%s\\0' \"$@\"; }")
                done = subprocess.run(["bash", "-c", said], capture_output=True, text=True, timeout=LIMIT)
                is_same = str(config) in done.stdout.split("\0") and (option != "value" or words[-1] in done.stdout)
                wrong = wrong or ("" if is_same and not done.returncode else f"another script: {done}")
        if Path("has-run").exists():
            wrong = "ran code"
        yield (
            not wrong,
            f"{place} {name[:20]!r}: exit {code}, {len(made)} files; {f'{wrong}; {output}' if wrong else ''}",
        )
        for path in [*made, config, Path("has-run")]:
            path.unlink(missing_ok=True)


CAMPAIGNS = {"damage": damage_trials, "errors": error_trials, "runs": run_trials}
CAMPAIGNS |= {"policies": policy_trials, "names": name_trials}
