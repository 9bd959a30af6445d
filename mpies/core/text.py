"""Words of messages: one line, printable, with counts."""

from collections.abc import Sequence


def escape(text: str) -> str:
    """The text with escapes such as \\x1b for control characters, which a user's file may hold; lines are kept."""
    return "".join(letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in text)


def printable(text: str) -> str:
    """The text on one line, with escapes for control characters."""
    return escape(" ".join(text.split()))


def counted(number: int, noun: str) -> str:
    """The number and the noun, such as `1 rank` or `12 ranks`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def name_few(names: Sequence[str]) -> str:
    """The first three names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
