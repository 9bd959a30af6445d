"""Words of messages: one line, printable, with counts, and what a value or an error of a user's is."""

import contextlib
import sys
import unicodedata
from collections.abc import Sequence
from typing import Any

from mpies.core.errors import ConfigError, UserError
from mpies.core.interrupt import is_interrupt

LONGEST = 500  # characters of a message of a user's exception


def escape(text: str) -> str:
    """The text with escapes such as \\x1b for control characters, which a user's file may hold; lines are kept."""
    return "".join(letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in text)


def flush_output() -> None:
    """Flush standard output and error, which a user's code may have closed, or replaced by what cannot be flushed."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def is_terminal(stream: Any) -> bool:
    """Whether a standard stream, which a user's code may have closed or replaced, is a terminal."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def one_line(value: object) -> str:
    """The text of a value or an exception on one line, with escapes for control characters."""
    return escape(" ".join(str(value).split()))


def unbroken(text: str, what: str) -> str:
    """The text, which becomes a part of a script, a manifest or source code, where a second line would be code.

    what: names it in the message.  Raises ConfigError where it has a newline or another control character.
    """
    if any(unicodedata.category(letter) in ("Cc", "Zl", "Zp") for letter in text):
        raise ConfigError(f"{what}: {text[:100]!r} has a newline or another control character; give one without")
    return text


def counted(number: int, noun: str) -> str:
    """The number and the noun, such as `1 rank` or `12 ranks`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def name_few(names: Sequence[str]) -> str:
    """The first three names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def align(rows: Sequence[Sequence[str]], left: int | None = None) -> str:
    """Rows of text as a table, its columns as wide as their longest cell.

    left: how many columns begin at their left edge; the others end at their right one.  None: all.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = ["<" if left is None or place < left else ">" for place in range(len(widths))]
    form = "  ".join(f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True))
    return "\n".join(form.format(*row).rstrip() for row in rows)


def describe_value(value: Any) -> str:
    """What a value is, in a few words: a number, or its type or shape."""
    import numpy as np  # here, since the command line limits threads before NumPy is imported

    if value is None or isinstance(value, (bool, int, float, np.generic)):
        return str(value)
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} of {value.dtype}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    return f"a {type(value).__name__}"


def message_of(error: BaseException) -> str:
    """The message of an exception that a user's code raised, on one line; cut where it is very long."""
    try:
        text = one_line(error)
    except BaseException as failure:  # __str__ is the user's code, too
        if is_interrupt(failure):
            raise
        return "(its message cannot be shown)"
    return text[:LONGEST] + (" ..." if len(text) > LONGEST else "")


def describe_error(error: BaseException) -> str:
    """What a user's code raised, on one line: its type and its message; of a UserError, the message alone.

    A person's Ctrl-C is raised again.
    """
    if is_interrupt(error):
        raise error
    text = message_of(error)
    if isinstance(error, UserError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
