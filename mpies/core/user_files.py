"""Files of the user's: an environment, a function, a solver or a network in a file that a config names."""

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from mpies.core.errors import UserError
from mpies.core.paths import absolute, start_folder
from mpies.core.text import describe_error

# Folder to the modules that files in it have imported from beside them, by name.
_neighbours: dict[Path, dict[str, ModuleType]] = {}


def find_definition(reference: str, problem: type[UserError], find_fault: Callable[[Any], str]) -> Any:
    """What path/to/file.py:name or module:name names; the file or module is imported once.

    find_fault: what is wrong with a value, such as `must be a class`; '' for one that is wanted.
    Raises `problem`, in one line that begins with the reference, where there is no such value or it is not wanted.
    """
    source, _, name = reference.rpartition(":")
    if (top := source.partition(".")[0]) in sys.stdlib_module_names and not source.endswith(".py"):
        raise problem(f"{reference}: {top} is a module of Python's own; name one of yours")
    path, is_file = absolute(source).resolve(), source.endswith(".py")
    if is_file and not path.is_file():
        raise problem(f"{reference}: there is no file {source} in {start_folder()}")
    try:
        if not is_file:
            search_start_folder()
        module = load_file(path, f"_custom_{path}") if is_file else importlib.import_module(source)
    except BaseException as error:  # the user's file may do anything
        raise problem(f"{reference}: {source} cannot be imported ({describe_error(error)})") from error
    if hasattr(module, name) and not (fault := find_fault(getattr(module, name))):
        return getattr(module, name)
    sys.modules.pop(module.__name__ if is_file else "", None)  # it is read again once the user has mended it
    if hasattr(module, name):
        raise problem(f"{reference}: {name} {fault}")
    has = [known for known, value in vars(module).items() if known[0] != "_" and not find_fault(value)]
    raise problem(f"{reference}: {source} has no {name}; it has {', '.join(has) or 'nothing of the kind'}")


def search_start_folder() -> None:
    """Let imports find the modules of the start folder, after all other places, in the rest of this process.

    Ranks are started as `python -m mpies`, which finds the modules of its working directory; `mpies` itself does not.
    """
    if str(start_folder()) not in sys.path:
        sys.path.append(str(start_folder()))
    importlib.invalidate_caches()


def load_file(path: Path, name: str) -> ModuleType:
    """The module of a Python file, imported once under a name of sys.modules.  path: absolute.

    Imports in the file find the modules beside it.  Raises whatever the file raises; then it is read again the next
    time, as the user may have mended it.
    """
    module = sys.modules.get(name)
    if module is not None and module.__file__ == str(path):
        return module
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # Python has a loader for every .py file
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with importing_from(path.parent):
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)  # a part of a module would be found the next time
        raise
    return module


@contextlib.contextmanager
def importing_from(folder: Path) -> Iterator[None]:
    """Let imports in the `with` block find the modules of a folder first.

    Afterwards sys.path is as before, and these modules are out of sys.modules: they are kept for the next time, and
    modules of the same names in another folder are others.
    """
    known = _neighbours.setdefault(folder, {})
    before = set(sys.modules)
    sys.modules.update((name, module) for name, module in known.items() if name not in before)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()  # a file may be younger than what Python remembers of its folder
    has_worked = False  # else they are imported again once the user has mended what is wrong
    try:
        yield
        has_worked = True
    finally:
        with contextlib.suppress(ValueError):  # the user's code may have changed it, too
            sys.path.remove(str(folder))
        new = set(sys.modules) - before
        top = {name for name in new if "." not in name and _is_in(sys.modules[name], folder)}
        mine = {name: sys.modules.pop(name) for name in new if name.partition(".")[0] in top}
        if has_worked:
            known.update(mine)


def _is_in(module: ModuleType, folder: Path) -> bool:
    """Whether a module is a file or a package right in this folder."""
    places = [*getattr(module, "__path__", ()), getattr(module, "__file__", None) or ""]
    return any(Path(place).parent == folder for place in places)
