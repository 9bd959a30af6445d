"""Mutations: change one operator, constant or statement of a package at a time, and see whether its tests notice.

    python benchmarks/mutations.py solvers training --mutants 30 --seed 1 --json FILE

In a copy of the tree, whose tests must pass, and fail where a file is broken.  Kernels (their C files) need Cython.
The same command goes on with a FILE that is there: with its seed, on the same tree.  It needs root, and sees no other
processes: a mutant of comm killed all that it saw.
"""

import argparse
import ast
import difflib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

HOME = Path(__file__).resolve().parent.parent
SWAPS = "Lt LtE, LtE Lt, Gt GtE, GtE Gt, Eq NotEq, Is IsNot, Add Sub, Sub Add, Mult Div, Div Mult, And Or, Or And"
SWAPS_IN_C = "< <=, <= <, > >=, >= >, + -, - +, * /, += -=, *= /=, && ||, || &&"
# Tests of a package that are in another folder.
ALSO = {
    "comm": ["tests/training/test_lost_ranks.py"],
    "kernels": ["tests/policies"],
    "policies": ["tests/kernels"],
    "rollouts": ["tests/kernels", "tests/training/test_rank_invariance.py"],
    "training": ["tests/runs/test_backend.py"],
}
Edit = tuple[str, int, int, str]  # operator, first byte of what is replaced, the byte behind it, and by what


def edits_of_c(text: str) -> Iterator[Edit]:
    """The mutations of a C file, outside comments and lines of the preprocessor."""
    hidden = [found.span() for found in re.finditer(r"/\*.*?\*/|^[ \t]*#[^\n]*", text, re.DOTALL | re.MULTILINE)]
    swaps = [(re.escape(f" {old} "), f" {new} ") for old, new in map(str.split, SWAPS_IN_C.split(","))]
    for pattern, new in [*swaps, (r"(?<![\w.])\d+(?![\w.])", "")]:
        for found in re.finditer(pattern, text):
            if not any(low <= found.start() < high for low, high in hidden):
                yield new.strip() or "constant", *found.span(), new or str(int(found[0]) + 1)


def edits_of_python(text: str) -> Iterator[Edit]:
    """The mutations of a Python file, outside messages.  text: each byte as a letter."""
    lines = [0, *(found.end() for found in re.finditer("\n", text))]
    nodes = list(ast.walk(ast.parse(text.encode("latin-1"))))
    messages = [one for one in nodes if isinstance(one, ast.JoinedStr | ast.Raise) or ast.unparse(one)[:4] == "log."]
    hidden = {inner for message in messages for inner in ast.walk(message)}
    conditions = {node.test for node in nodes if isinstance(node, ast.If | ast.While | ast.IfExp)}
    for node in nodes:
        if isinstance(node, ast.expr | ast.stmt) and node not in hidden and "TYPE_CHECKING" not in ast.unparse(node):
            start = lines[node.lineno - 1] + node.col_offset
            stop = lines[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            for kind, new in mutants_of(node, node in conditions):
                yield kind, start, stop, new if isinstance(node, ast.stmt) else f"({new})"


def mutants_of(node: ast.expr | ast.stmt, is_condition: bool) -> Iterator[tuple[str, str]]:
    """The operators that fit a node, and the code that each makes of it."""
    if is_condition:
        yield "negation", f"not ({ast.unparse(node)})"
    field, operators = ("ops", node.ops) if isinstance(node, ast.Compare) else ("op", [getattr(node, "op", None)])
    name = dict(map(str.split, SWAPS.split(","))).get(type(operators[0]).__name__)
    if name and len(operators) == 1:
        swapped = getattr(ast, name)()
        yield name, ast.unparse(type(node)(**vars(node) | {field: [swapped] if field == "ops" else swapped}))
    match node:
        case ast.Constant(value=bool()):
            yield "true, false", str(not node.value)
        case ast.Constant(value=int() | float()):
            yield from (("constant", str(node.value + change)) for change in (-1, 1))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield "sign", ast.unparse(operand)
        case ast.Call(func=ast.Attribute(value=value, attr="copy"), args=[]):
            yield "copy", ast.unparse(value)
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "statement", "pass"


def run_tests(home: Path, package: str, name: str, limit: int = 1800) -> int:
    """The exit code of pytest in a fork, which need not import other packages; below 0 after `limit` seconds."""
    if not (process := os.fork()):
        os.setsid()
        os.chdir(home)  # pytest puts it first into sys.path
        sys.dont_write_bytecode = True  # compiled code is told by size and second, which two mutants may share
        os.environ.update(PYTHONPATH=str(home), PYTHONDONTWRITEBYTECODE="1", TMPDIR=str(home.parent))
        output = os.open(home.parent / "output", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        for descriptor, file in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
            os.dup2(file, descriptor)
        signal.alarm(limit)
        files = [*map(str, home.glob(f"tests/{package}/**/test_{name}.py")), f"tests/{package}", *ALSO.get(package, [])]
        os._exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *files]))
    while (ended := os.wait())[0] != process:
        pass  # an orphan
    code = os.waitstatus_to_exitcode(ended[1])
    subprocess.run(["pkill", "-KILL", "-s", str(process)])  # what is left of its session
    return code


def try_mutant(home: Path, package: str, limit: int, file: Path, edit: Edit) -> tuple[int | None, str]:
    """The exit code of a package's tests with an edit, None where that does not compile; and its diff."""
    before, name, is_built = file.read_bytes(), str(file.relative_to(home)), True
    after = before[: edit[1]] + edit[3].encode() + before[edit[2] :]
    file.write_bytes(after)
    if package == "kernels":
        for library in home.glob("mpies/kernels/*.so"):
            library.unlink()  # a build that fails leaves it, and ends with code 0
        subprocess.run([sys.executable, "setup.py", "build_ext", "--inplace", "--force"], cwd=home, capture_output=True)
        is_built = any(home.glob("mpies/kernels/*.so"))
    code = run_tests(home, package, file.stem, limit) if is_built else None
    file.write_bytes(before)
    print(f"{name}, {edit[0]}: exit code {code}", flush=True)
    lines = before.decode().splitlines(), after.decode().splitlines()
    return code, "\n".join(difflib.unified_diff(*lines, name, name, n=0, lineterm=""))


def run_package(package: str, count: int, seed: int, found: dict[str, Any], save: Callable[[], None]) -> None:
    """Test mutants of a package in a copy of the tree, those behind the `tried` first; `found` is saved after each."""
    with tempfile.TemporaryDirectory(prefix="mpies-mutations-") as folder:
        home = Path(folder).resolve() / "tree"
        shutil.copytree(HOME, home, symlinks=True, ignore=shutil.ignore_patterns(".git", ".venv"))
        files = sorted((home / "mpies" / package).resolve().rglob("*.[ch]" if package == "kernels" else "*.py"))
        by_kind: dict[str, list[tuple[Path, Edit]]] = {}
        for file in files:
            find = edits_of_python if file.suffix == ".py" else edits_of_c
            for edit in find(file.read_bytes().decode("latin-1")):
                by_kind.setdefault(edit[0], []).append((file, edit))
        broken = by_kind["-="][0] if package == "kernels" else (files[0], ("broken", 0, 0, "raise ImportError\n"))
        began = time.monotonic()
        failed, limit = run_tests(home, package, ""), int(60 + 3 * (time.monotonic() - began))
        if failed or not try_mutant(home, package, limit, *broken)[0]:
            print(Path(folder, "output").read_text()[-3000:])
            raise SystemExit(f"{package}: tests of the copy must pass, and fail where {broken[0].name} is broken")
        mixed = [random.Random(seed).sample(mutants, len(mutants)) for mutants in by_kind.values()]
        chosen = [mutant for mutants in zip_longest(*mixed) for mutant in mutants if mutant][:count]
        for mutant in chosen[found["tried"] :]:
            code, diff = try_mutant(home, package, limit, *mutant)
            found["tried"] += 1
            found["caught"] += code not in (None, 0)
            found["survivors"] += [diff] if code == 0 else []
            save()
    caught, survivors = found["caught"], found["survivors"]
    print(*survivors, f"{package}: {caught} of {caught + len(survivors)} were caught, seed {seed}", sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="+")
    parser.add_argument("--mutants", type=int, default=60, help="of each package")
    parser.add_argument("--seed", type=int, default=random.randrange(1000))
    parser.add_argument("--json", type=Path, default=Path(os.devnull))
    options = parser.parse_args()
    if os.getpid() != 1:
        spaces = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        os.execvp(spaces[0], [*spaces, sys.executable, *sys.argv])
    for name in ("cma", "click", "gymnasium", "h5py", "psutil", "pydantic", "rich.console", "scipy.stats", "yaml"):
        __import__(name)
    results: dict[str, Any] = {"seed": options.seed}
    if options.json.is_file():
        results = json.loads(options.json.read_text())

    def save() -> None:
        options.json.write_text(json.dumps(results, indent=1) + "\n")

    for package in options.packages:
        found = results.setdefault(package, {"tried": 0, "caught": 0, "survivors": []})
        run_package(package, options.mutants, results["seed"], found, save)


if __name__ == "__main__":
    main()
