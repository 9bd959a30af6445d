"""The trials of a sweep: a base config, the settings that vary, times seeds."""

import copy
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from mpies.config.loading import Values, make_config, read_yaml
from mpies.config.messages import explain, quoted
from mpies.config.recipes import find_config
from mpies.config.schema import Config
from mpies.errors import USER_ERRORS, ConfigError
from mpies.solvers.options import Count, Options, WholeNumber
from mpies.sweeps.settings import Settings, as_overrides, as_text, list_settings, read_seeds

LONGEST = 100  # letters of what a name says of the settings
NAMED = 3  # trials that a mistake names at most


class SweepFile(Options):
    """The keys of a sweep file."""

    base: Any = Field(description="path of a config, a recipe's name, or a config itself")
    vary: dict[str, Any] = Field({}, description="keys of the config to lists of values, or to distributions")
    trials: Count | None = Field(None, description="how many times values are drawn from the distributions")
    seeds: Any = Field(None, description="5 for 1 to 5, a range such as 6..10, or a list; default the config's seed")
    draw_seed: WholeNumber = Field(1, description="decides on the values that are drawn")


@dataclass(frozen=True)
class Trial:
    """A run of a sweep.

    name: of its directory.  label: of its settings, the same for all its seeds.  overrides: all in which its config
    differs from the base, as KEY=VALUE.
    """

    name: str
    label: str
    settings: Settings
    seed: int
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Sweep:
    """A base config and what varies.

    base: the config's values.  where: its path, for messages.  vary: keys to lists or distributions, as in a file.
    trials: how many times the distributions are drawn from.  seeds: None for the base's own.
    """

    base: Values
    where: str
    vary: dict[str, Any]
    trials: int | None = None
    seeds: list[int] | None = None
    draw_seed: int = 1

    @property
    def varied(self) -> list[str]:
        """The keys that may have more than one value."""
        return [key for key, given in self.vary.items() if not (isinstance(given, list) and len(given) == 1)]

    def config(self, trial: Trial) -> Config:
        """The Config of a trial, as `mpies train` with its overrides has it.  Raises ConfigError."""
        return make_config(copy.deepcopy(self.base), trial.overrides, self.where)

    def list_trials(self) -> list[Trial]:
        """All trials, those of the same seed one after the other.  Raises ConfigError."""
        if any(key == "seed" for key in self.vary):
            raise ConfigError("seed is given with --seeds, such as --seeds 5 or --seeds 6..10, and not as a key")
        found = list_settings(self.vary, self.trials, self.draw_seed)
        labels = _make_labels([{key: one[key] for key in self.varied} for one in found])
        own = self.base.get("seed", Config.model_fields["seed"].default)
        trials = []
        for seed in self.seeds or [own]:
            for label, settings in zip(labels, found, strict=True):
                name = f"{label}_seed={seed}" if label else f"seed={seed}"
                overrides = (*as_overrides(settings), f"seed={as_text(seed)}")
                trials.append(Trial(name, label, settings, seed, overrides))
        return trials

    def as_values(self) -> Values:
        """The sweep as the values of a sweep file."""
        seeds = {} if self.seeds is None else {"seeds": self.seeds}
        trials = {} if self.trials is None else {"trials": self.trials, "draw_seed": self.draw_seed}
        return {"base": self.base, "vary": self.vary, **trials, **seeds}


def load_sweep(
    path: str | Path,
    vary: Mapping[str, Any] | None = None,
    trials: int | None = None,
    seeds: Any = None,
    draw_seed: int | None = None,
) -> Sweep:
    """The Sweep of a config or of a sweep file, which has the key `base`.  Raises ConfigError.

    What else is given takes the place of what a sweep file says.
    """
    path = find_config(path)
    values = read_yaml(path)
    if "base" not in values:
        return _make(values, str(path), vary or {}, trials, seeds, draw_seed)
    return read_sweep(values, str(path), vary, trials, seeds, draw_seed)


def read_sweep(
    values: Mapping[str, Any],
    where: str,
    vary: Mapping[str, Any] | None = None,
    trials: int | None = None,
    seeds: Any = None,
    draw_seed: int | None = None,
) -> Sweep:
    """The Sweep of a sweep file's values; what else is given takes the place of what they say.  Raises ConfigError."""
    try:
        file = SweepFile.model_validate(values)
    except ValidationError as error:
        raise ConfigError(explain(error, where, (), SweepFile)) from None
    base, place = file.base, where
    if isinstance(base, str):
        place = str(find_config(base))
        base = read_yaml(place)
    elif not isinstance(base, dict):
        raise ConfigError(f"{where}: base must be a config, its path or a recipe's name, but is {quoted(base)}")
    return _make(
        base,
        place,
        {**file.vary, **(vary or {})},
        file.trials if trials is None else trials,
        file.seeds if seeds is None else seeds,
        file.draw_seed if draw_seed is None else draw_seed,
    )


def _make(
    base: Values, where: str, vary: Mapping[str, Any], trials: int | None, seeds: Any, draw_seed: int | None
) -> Sweep:
    numbers = None if seeds is None else read_seeds(seeds)
    return Sweep(base, where, dict(vary), trials, numbers, 1 if draw_seed is None else draw_seed)


def check_trials(sweep: Sweep, trials: Sequence[Trial]) -> None:
    """Raise ConfigError, with all mistakes at once, where configs of trials cannot be used.

    The seed changes no mistake, so of trials with the same settings one is looked at.
    """
    mistakes: dict[str, list[str]] = {}  # message to labels
    checked = {trial.label: trial for trial in reversed(trials)}
    for label, trial in reversed(checked.items()):
        try:
            sweep.config(trial)
        except USER_ERRORS as error:
            mistakes.setdefault(str(error).removeprefix("the command line: "), []).append(label or trial.name)
    if not mistakes:
        return
    wrong = {label for labels in mistakes.values() for label in labels}
    listed = [f"{_list_names(labels)}: {message}" for message, labels in mistakes.items()]
    raise ConfigError(
        f"{len(wrong)} of {len(checked)} settings cannot be trained, so nothing was started -- {' -- '.join(listed)}"
    )


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _make_labels(found: Sequence[Settings]) -> list[str]:
    """A short name of each of the settings, which have the same keys: the last part of a key where that tells it."""
    keys = list(found[0])
    short = {key: _shorten(key, keys) for key in keys}
    labels = [
        "_".join(f"{short[key]}={_as_name(as_text(value))}" for key, value in settings.items()) for settings in found
    ]
    return [
        label if len(label) <= LONGEST and labels.count(label) == 1 else f"{label[: LONGEST - 9]}-{_hash(settings)}"
        for label, settings in zip(labels, found, strict=True)
    ]


def _shorten(key: str, keys: Sequence[str]) -> str:
    parts = key.split(".")
    for count in range(1, len(parts)):
        end = ".".join(parts[-count:])
        if sum(f".{other}".endswith(f".{end}") for other in keys) == 1:
            return _as_name(end)
    return _as_name(key)


def _as_name(text: str) -> str:
    """The text as part of a file's name, without spaces, brackets and quotes."""
    kept = (letter for letter in text if letter not in " []{}'\"")
    return "".join(letter if letter.isalnum() or letter in "-_.," else "-" for letter in kept)


def _hash(settings: Settings) -> str:
    return hashlib.sha256(as_text(settings).encode()).hexdigest()[:8]
