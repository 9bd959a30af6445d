"""Whether code that a policy file or a run directory names may run; nothing that others send runs unasked.

Code is what a config names outside of mpies and the installed registries.  Training signs it with a key of the user's.
"""

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from mpies.core.paths import absolute, start_folder
from mpies.envs import BACKENDS
from mpies.envs.custom_env import is_here

# Sections that name code, and say what it is called with; their key that names it; a prefix of names that are no code.
NAMES = (("environment", "id", "function"), ("policy", "module", None), ("solver", "kind", "nevergrad"))
KEY_SIZE = 32  # bytes

_trusts: ContextVar[bool] = ContextVar("_trusts", default=False)


@contextlib.contextmanager
def trusting(trust: bool = True) -> Iterator[None]:
    """In the `with` block, this thread runs what files name, as with MPIES_TRUST=1.  trust: False changes nothing."""
    before = _trusts.set(trust or _trusts.get())
    try:
        yield
    finally:
        _trusts.reset(before)


def find_code(values: Mapping[str, Any]) -> dict[str, str]:
    """Dotted keys of a config to the code that they name: path/to/file.py:name, module:name, or an id that runs it."""
    code = {}
    for name, key, listed in NAMES:
        section = values.get(name)
        reference = str(section.get(key, "")) if isinstance(section, Mapping) else ""
        prefix, colon, rest = reference.partition(":")
        if key == "id" and colon and prefix in BACKENDS:
            reference = rest
        # gymnasium's ids GymV21Environment-v0 and the like import what their kwargs name.
        is_code = ":" in reference or key == "module" or reference.startswith(("GymV21", "GymV26"))
        if reference and prefix != listed and is_code:
            code[f"{name}.{key}"] = reference
    return code


def sign(values: Mapping[str, Any], may_make_key: bool = True) -> str:
    """The signature of the code that a config names and of its arguments, for what is trained with it.

    '' where it names none, where its files are not found, and where no key of the user's can be read or written.
    """
    files = [_find_file(reference) for reference in find_code(values).values()]
    try:
        digests = [(str(file), hashlib.sha256(file.read_bytes()).hexdigest()) for file in files if file]
        content = json.dumps([[values.get(name) for name, *_ in NAMES], digests], sort_keys=True)
    except (OSError, TypeError, ValueError, RecursionError):  # the file of a stranger may hold anything
        return ""
    key = _read_key(may_make_key) if digests and len(digests) == len(files) else b""
    return hmac.new(key, content.encode(), "sha256").hexdigest() if key else ""


def find_refusal(values: Mapping[str, Any], signature: object, where: str) -> str:
    """Why the code that a saved config names must not run, in one line; '' where it may, or where there is none.

    signature: what is saved beside it.  where: the file or directory, which begins the line.
    """
    code = {key: name for key, name in find_code(values).items() if not is_here(name)}
    if not code or _trusts.get() or os.environ.get("MPIES_TRUST") == "1":
        return ""
    if (own := sign(values, may_make_key=False)) and hmac.compare_digest(own, ascii(signature)[1:-1]):
        return ""
    listed = ", ".join(f"{key} {reference!r} ({_find_file(reference) or 'no file'})" for key, reference in code.items())
    return (
        f"{where}: would run code that it names, {listed}, but it was not trained here with this code; read the code, "
        "and allow it with --trust (in Python trust=True, anywhere MPIES_TRUST=1)"
    )


def _find_file(reference: str) -> Path | None:
    """The file that a reference leads to, which is not imported; None where there is none."""
    source = reference.rpartition(":")[0]
    with contextlib.suppress(OSError, ValueError):
        if source.endswith(".py"):
            return path if (path := absolute(source).resolve()).is_file() else None
        places: Any = [*sys.path, str(start_folder())]
        name, spec = "", None
        for part in source.split("."):
            name = f"{name}.{part}".lstrip(".")
            spec = PathFinder.find_spec(name, places) if places else None
            places = spec.submodule_search_locations if spec else None
        return Path(spec.origin).resolve() if spec and spec.origin and spec.has_location else None
    return None


def _read_key(may_make: bool) -> bytes:
    """The user's secret key; b'' where there is none that only this user can read."""
    place = os.environ.get("XDG_CONFIG_HOME", "")
    file = Path(place if os.path.isabs(place) else os.path.expanduser("~/.config"), "mpies", "key")
    with contextlib.suppress(OSError):
        if may_make and file.is_absolute() and not file.exists():  # else nobody knows where the user's home is
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = file.with_name(f".key.{secrets.token_hex(8)}")
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
                opened.write(secrets.token_bytes(KEY_SIZE))
            with contextlib.suppress(FileExistsError):  # of several jobs one makes it
                os.link(new, file)
            new.unlink()
        with file.open("rb") as opened:
            status, key = os.fstat(opened.fileno()), opened.read()
        if file.is_absolute() and status.st_uid == os.geteuid() and not status.st_mode & 0o077 and len(key) == KEY_SIZE:
            return key
    return b""
