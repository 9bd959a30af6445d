"""Files of the user's: an environment, a function, a solver or a network in a file that a config names."""

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

# Folder to the modules that files in it have imported from beside them, by name.
_neighbours: dict[Path, dict[str, ModuleType]] = {}


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
