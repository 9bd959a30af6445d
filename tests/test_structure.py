"""The shape of the code, read from the code itself: directions of imports, sizes, and one update."""

import ast
import graphlib
from collections import defaultdict
from functools import cache

import pytest

from tests.support import HOME

# Packages from the top down; one imports only those below it.
LAYERS = [
    *("cli", "api", "launch", "sweeps", "report", "training", "runs", "rollouts", "config"),
    *("policies", "kernels", "comm", "solvers", "envs", "core"),
]
BOTTOM = ("solvers", "envs")  # folders at the top of the repository
LONGEST_FUNCTION = 80  # lines


@cache
def modules():
    """Dotted name to path of every module of mpies, solvers and envs."""
    found = {}
    for prefix in ("mpies", "mpies.solvers", "mpies.envs"):
        folder = HOME / prefix.rpartition(".")[2]
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            if prefix == "mpies" and parts[0] in BOTTOM:  # the links to ../solvers and ../envs
                continue
            found[".".join([prefix, *parts]).removesuffix(".__init__")] = path
    return found


@cache
def tree_of(name):
    return ast.parse(modules()[name].read_text())


@cache
def imports_of(name):
    """(module, line) of each import in a module, also inside its functions; of `from a import b`, a.b if it is one."""
    found = []
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = name.split(".") if modules()[name].stem == "__init__" else name.split(".")[:-1]
                base = ".".join(package[: len(package) - node.level + 1] + ([base] if base else []))
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                found.append((whole if whole in modules() else base, node.lineno))
    return found


def package_of(module):
    """The package, or module right below mpies, that a module is part of; '' for mpies itself."""
    return module.partition(".")[2].partition(".")[0]


def functions():
    """(module, function) of every function and method."""
    for name in modules():
        for node in ast.walk(tree_of(name)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield name, node


def package_arrows():
    """Package to the packages that it imports, and one place of each such import."""
    arrows, places = defaultdict(set), {}
    for name in modules():
        for target, line in imports_of(name):
            source, destination = package_of(name), package_of(target)
            if target.split(".")[0] == "mpies" and source != destination:
                arrows[source].add(destination)
                places[source, destination] = f"{name}:{line} imports {target}"
    return arrows, places


def test_the_imports_of_all_modules_were_read():
    assert len(modules()) > 90
    assert {package_of(name) for name in modules()} - {"", "__main__"} <= {*LAYERS}
    assert "mpies.training.update" in {target for target, _ in imports_of("mpies.training.trainer")}
    inside = {target for target, _ in imports_of("mpies.comm")}
    assert "mpies.comm.mpi" in inside  # which is imported in a function


def test_imports_of_packages_go_down():
    order = ["", "__main__", *LAYERS]
    _, places = package_arrows()
    upward = [place for (source, target), place in places.items() if order.index(target) <= order.index(source)]
    assert upward == [], "imports against the order"


@pytest.mark.parametrize("package", BOTTOM)
def test_solvers_and_envs_import_nothing_of_mpies_but_themselves_and_core(package):
    arrows, places = package_arrows()
    assert [places[package, other] for other in arrows[package] - {"core"}] == []


def test_modules_do_not_import_each_other_in_a_circle():
    arrows = {name: {target for target, _ in imports_of(name) if target in modules()} for name in modules()}
    graphlib.TopologicalSorter(arrows).prepare()  # raises CycleError, which names them


def test_no_module_has_two_names():
    imports = [(name, *found) for name in modules() for found in imports_of(name)]
    assert [(name, target, line) for name, target, line in imports if target.split(".")[0] in BOTTOM] == []


def test_few_tests_may_run_twice_and_each_says_why():
    marks = []
    for path in (HOME / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.flaky":
                marks.append({word.arg: ast.literal_eval(word.value) for word in node.keywords})
    assert len(marks) <= 5 and all(mark["reruns"] == 1 and len(mark["reason"]) > 30 for mark in marks), marks


def test_no_name_stands_for_two_things():
    """Classes; and files, but for those of a command, which have its name in each package that serves it."""
    files, classes = defaultdict(list), defaultdict(list)
    for name in modules():
        files[name.rpartition(".")[2]].append(name)
        for node in tree_of(name).body:
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(name)
    commands = {name.rpartition(".")[2] for name in modules() if package_of(name) == "cli"}
    # Custom solvers import options and streams from mpies.solvers, which hands on those of core.
    allowed = {"base", "options", "streams", *(package_of(name) for name in modules()), *commands}
    assert {stem: names for stem, names in files.items() if len(names) > 1 and stem not in allowed} == {}
    assert {name: places for name, places in classes.items() if len(places) > 1} == {}


def test_no_function_is_too_long():
    lengths = {f"{name}.{f.name}": f.end_lineno - f.lineno + 1 for name, f in functions()}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FUNCTION} == {}


def test_the_update_of_a_generation_is_written_once():
    """`compute_weights` is called in one place, besides solvers that call their own, checks of these, and estimates."""
    others = ("mpies.launch.forecast.cost", "mpies.solvers.check")
    callers = []
    for name, function in functions():
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                is_own = name.startswith("mpies.solvers.") and ast.unparse(node.func.value) in ("self", "super()")
                if node.func.attr == "compute_weights" and not is_own and name not in others:
                    callers.append(f"{name}.{function.name}")
    assert callers == ["mpies.solvers.sum_moments.sum_moments"]
