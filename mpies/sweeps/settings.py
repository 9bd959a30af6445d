"""What a sweep varies: lists of values that make a grid, and distributions that values are drawn from."""

import itertools
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml
from pydantic import TypeAdapter

from mpies.config.loading import MOST_DIGITS, Values, decimal_seeds, parse_value
from mpies.config.mistakes import quoted
from mpies.core.errors import ConfigError
from mpies.core.options import Integer, Real
from mpies.core.streams import SETTINGS, stream

DISTRIBUTIONS = ("log_uniform", "uniform", "integer", "choice")
DIGITS = 4  # of numbers that are drawn: names of trials stay short, and a config says exactly what was trained
MOST_SEEDS = 100_000  # of a sweep: with more, its trials would fill the memory
ATTEMPTS = 100  # draws for each trial that is wanted, before there are too few different ones

Settings = dict[str, Any]  # dotted keys of a config to values


@dataclass(frozen=True)
class Distribution:
    """Values that are drawn.

    kind: one of DISTRIBUTIONS.  values: the lowest and the highest value, both included; for a choice, all of them.
    """

    kind: str
    values: list[Any]

    def draw(self, random: np.random.Generator) -> Any:
        """A value."""
        if self.kind == "choice":
            return self.values[int(random.integers(len(self.values)))]
        low, high = self.values
        if self.kind == "integer":
            return int(random.integers(low, high, endpoint=True))
        share = random.random()
        number = low + share * (high - low) if self.kind == "uniform" else low * (high / low) ** share
        return self.round(number)

    def round(self, number: float) -> float:
        """A number of a range with DIGITS significant digits, as far as the limits allow."""
        return min(max(float(f"{number:.{DIGITS}g}"), float(self.values[0])), float(self.values[1]))


def read_values(key: str, given: Any) -> list[Any] | Distribution:
    """What a key is to be, from a sweep file or from Python: a list, or a mapping such as {log_uniform: [0.01, 0.1]}.

    Raises ConfigError.
    """
    if isinstance(given, Mapping) and len(given) == 1 and next(iter(given)) in DISTRIBUTIONS:
        kind, values = next(iter(given.items()))
        return _make_distribution(key, kind, values)
    if not isinstance(given, list):
        raise ConfigError(
            f"vary: {key} must be a list of values, or one of {', '.join(DISTRIBUTIONS)} such as "
            f"{{uniform: [0.1, 0.5]}}, but is {quoted(given)}"
        )
    return _check_different(key, given)


def _check_different(key: str, values: list[Any]) -> list[Any]:
    try:
        texts = [as_text(value) for value in values]
    except yaml.YAMLError:
        raise ConfigError(
            f"vary: {key} accepts only numbers, text, true, false, lists and sections, but has {quoted(values)}"
        ) from None
    if not values:
        raise ConfigError(f"vary: {key} has no values; give at least one")
    if repeated := [text for number, text in enumerate(texts) if text in texts[:number]]:
        raise ConfigError(f"vary: {key} has the value {repeated[0]} twice; remove one")
    return values


def _make_distribution(key: str, kind: str, values: Any) -> Distribution:
    if kind == "choice":
        if not isinstance(values, list):
            raise ConfigError(f"vary: {key}: choice must be a list of values, but is {quoted(values)}")
        return Distribution(kind, _check_different(key, values))
    least = " above 0" if kind == "log_uniform" else ""
    try:
        low, high = (_read_end(kind, value) for value in (values if isinstance(values, list) else []))
        is_range = low < high and (not least or low > 0)
    except ValueError:
        is_range = False
    if not is_range:
        what, example = ("whole", "[1, 10]") if kind == "integer" else ("finite", "[0.01, 0.1]")
        raise ConfigError(
            f"vary: {key}: {kind} must be two {what} numbers{least}, the lower one first, such as {example}, but is "
            f"{quoted(values)}"
        )
    if kind == "integer" and not -(2**63) <= low < high < 2**63:  # NumPy and Optuna draw no larger ones
        raise ConfigError(f"vary: {key}: integer must be within 64 bits, but is {quoted(values)}; take a smaller range")
    return Distribution(kind, [low, high])


def _read_end(kind: str, value: Any) -> Any:
    """A limit as a config reads a number, also 1e-3, which PyYAML takes for a text.  Raises ValueError."""
    number: TypeAdapter[Any] = TypeAdapter(Integer if kind == "integer" else Real)
    read = number.validate_python(value)
    return read if kind == "integer" or isinstance(value, str) else value


def read_override(text: str) -> tuple[str, Any]:
    """Key and values of "solver.sigma=0.02,0.05" or "solver.sigma={log_uniform: [0.01, 0.1]}".  Raises ConfigError."""
    key, equals, values = text.partition("=")
    if not (equals and values and key) or not all(key.split(".")):
        raise ConfigError(f"the command line: {text!r} must be KEY=VALUE,VALUE..., for instance solver.sigma=0.05,0.1")
    found = parse_value(f"[{decimal_seeds(key, values)}]", f"the command line, {key}")
    only = found[0] if len(found) == 1 else None
    return key, only if isinstance(only, dict) and {*only} & {*DISTRIBUTIONS} else found


def read_seeds(given: Any) -> list[int]:
    """The seeds of 5, which are 1 to 5, of a list, or of the text "6..10".  Raises ConfigError."""
    if isinstance(given, str):
        first, dots, last = given.rpartition("..")
        first = first if dots else "1"
        if len(given) <= MOST_DIGITS and first.isdecimal() and last.isdecimal() and int(first) <= int(last):
            return _list_seeds(int(first), int(last))
    elif isinstance(given, int) and not isinstance(given, bool) and given > 0:
        return _list_seeds(1, given)
    elif isinstance(given, Sequence) and given:
        is_valid = all(isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 for seed in given)
        if is_valid and len({*given}) == len(given):
            return list(given)
    raise ConfigError(
        "seeds must be a number such as 5, a range such as 6..10, or in a file or in Python a list such as [1, 3], "
        f"but is {quoted(given)}"
    )


def _list_seeds(first: int, last: int) -> list[int]:
    """The seeds from first to last.  Raises ConfigError where they are too many."""
    count = last - first + 1
    if count > MOST_SEEDS:
        raise ConfigError(
            f"seeds: {first}..{last} are {count:,} seeds, but at most {MOST_SEEDS:,} can be trained; lower the number, "
            f"or for the one seed {last} give {last}..{last}"
        )
    return list(range(first, last + 1))


def list_settings(vary: Mapping[str, Any], trials: int | None, draw_seed: int) -> list[Settings]:
    """The settings of all trials: each draw of the distributions with each combination of the lists.

    vary: keys to what `read_values` takes.  trials: how many times values are drawn; None where nothing is.
    draw_seed: decides on the draws.  The value of a key is a function of (draw_seed, number of the trial, key), so more
    trials, or another key, leave those that there are as they are.  Raises ConfigError.
    """
    values = {key: read_values(key, given) for key, given in vary.items()}
    drawn = {key: value for key, value in values.items() if isinstance(value, Distribution)}
    if drawn and trials is None:
        raise ConfigError(f"trials is missing: how many times to draw {', '.join(drawn)}, for instance --trials 20")
    if trials is not None and not drawn:
        raise ConfigError(f"trials is for values that are drawn ({', '.join(DISTRIBUTIONS)}); leave it out for lists")
    draws = _draw(drawn, trials, draw_seed) if trials is not None else [{}]
    lists = {key: value for key, value in values.items() if isinstance(value, list)}
    grid = [dict(zip(lists, combination, strict=True)) for combination in itertools.product(*lists.values())]
    return [{key: (one | draw)[key] for key in vary} for draw in draws for one in grid]


def _draw(drawn: Mapping[str, Distribution], trials: int, draw_seed: int) -> list[Settings]:
    """`trials` different draws."""
    found: dict[str, Settings] = {}
    for number in range(ATTEMPTS * trials):
        draw = {
            key: one.draw(stream(draw_seed, SETTINGS, number, zlib.crc32(key.encode()))) for key, one in drawn.items()
        }
        found.setdefault(as_text(draw), draw)
        if len(found) == trials:
            return list(found.values())
    raise ConfigError(f"trials is {trials}, but only {len(found)} different ones were drawn; lower it, or make a grid")


def as_text(value: Any) -> str:
    """A value as YAML on one line, which reads back as the same value."""
    return yaml.safe_dump(value, default_flow_style=True, width=2**30, sort_keys=True).removesuffix("...\n").strip()


def as_overrides(settings: Values) -> list[str]:
    """Settings as the KEY=VALUE of a command line; a section comes before its own keys, which it would replace."""
    return [f"{key}={as_text(settings[key])}" for key in sorted(settings, key=lambda key: key.count("."))]
