"""The trials of a sweep: a base config, the settings that vary, times seeds."""

import copy
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from mpies.config.loading import Values, make_config, parse_value, read_config
from mpies.config.mistakes import explain, quoted
from mpies.config.recipes import find_config
from mpies.config.schema import Config
from mpies.core.errors import ConfigError, UserError
from mpies.core.options import Count, Integer, Options, WholeNumber
from mpies.core.text import name_few
from mpies.report.compare.ranking import Trial
from mpies.report.compare.run_groups import shorten_keys
from mpies.sweeps.settings import Settings, as_overrides, as_text, list_settings, read_override, read_seeds

LONGEST = 100  # letters of what a name says of the settings


class HalvingOptions(Options):
    """The keys of halving."""

    first: Count = Field(description="budget of the first rung, in units")
    unit: Literal["steps", "generations"] = Field("steps", description="what budgets count: steps or generations")
    eta: Integer = Field(
        3, ge=2, description="of a rung's settings, the best one in eta continues, with an eta times larger budget"
    )


class SamplerOptions(Options):
    """The keys of sampler."""

    kind: Literal["tpe", "cma"] = Field("tpe", description="which of Optuna's samplers proposes settings: tpe or cma")
    batch: Count = Field(10, description="settings that are proposed at a time, from the results of all earlier ones")


class SweepFile(Options):
    """The keys of a sweep file."""

    base: Any = Field(description="path of a config, a recipe's name, or a config itself")
    vary: dict[str, Any] = Field({}, description="the keys that vary, each with a list of values or a distribution")
    trials: Count | None = Field(None, description="number of settings to draw from the distributions")
    seeds: Any = Field(
        None, description="5 means 1 to 5; also a range such as 6..10, or a list; default the config's seed"
    )
    draw_seed: WholeNumber = Field(1, description="seed of the values that are drawn")
    halving: HalvingOptions | None = Field(None, description="train only the best settings to the end")
    sampler: SamplerOptions | None = Field(None, description="have Optuna propose the settings")


class Sweep(SweepFile):
    """A base config and what varies.

    base: the config's values.  seeds: as a list; None for the base's own.  where: path of the base, for messages.
    """

    where: str

    @property
    def varied(self) -> list[str]:
        """The keys that may have more than one value."""
        return [key for key, given in self.vary.items() if not (isinstance(given, list) and len(given) == 1)]

    def config(self, trial: Trial, overrides: Sequence[str] = ()) -> Config:
        """The Config of a trial, as `mpies train` with its overrides, and these, has it.  Raises ConfigError."""
        return make_config(copy.deepcopy(self.base), [*trial.overrides, *overrides], self.where)

    def list_trials(self) -> list[Trial]:
        """All trials, those of the same seed one after the other.  Raises ConfigError."""
        self.check_keys()
        found = list_settings(self.vary, self.trials, self.draw_seed)
        return self._combine(found, _make_labels([{key: one[key] for key in self.varied} for one in found]))

    def list_proposed(self, batches: Sequence[Sequence[Settings]]) -> list[Trial]:
        """The trials of batches of a sampler.  Settings that were proposed before are not trained again."""
        self.check_keys()
        labels: dict[str, Settings] = {}
        trials = []
        for batch in batches:
            fresh = []
            for settings in batch:
                label = _make_labels([{key: settings[key] for key in self.varied}])[0]
                if label in labels and labels[label] != settings:
                    label = f"{label[: LONGEST - 9]}-{_hash(settings)}"
                if label not in labels:
                    labels[label] = settings
                    fresh.append(label)
            trials += self._combine([labels[label] for label in fresh], fresh)
        return trials

    def check_keys(self) -> None:
        """Raise ConfigError where a key is varied that must not be."""
        if any(key == "seed" for key in self.vary):
            raise ConfigError("seed is given with --seeds, such as --seeds 5 or --seeds 6..10, and not as a key")
        if self.sampler and self.halving:
            raise ConfigError("sampler and halving cannot be used together; leave one of them out")
        if self.sampler and self.trials is None:
            raise ConfigError("trials is missing: how many settings the sampler proposes, for instance --trials 20")

    def _combine(self, found: Sequence[Settings], labels: Sequence[str]) -> list[Trial]:
        """The trials of these settings with all seeds."""
        of_base = self.base.get("seed", Config.model_fields["seed"].default)
        trials = []
        for seed in self.seeds or [of_base]:
            for label, settings in zip(labels, found, strict=True):
                name = f"{label}_seed={seed}" if label else f"seed={seed}"
                overrides = (*as_overrides(settings), f"seed={as_text(seed)}")
                trials.append(Trial(name, label, settings, seed, overrides))
        return trials

    def as_values(self) -> Values:
        """The sweep as the values of a sweep file."""
        left_out = {"where"} if self.trials else {"where", "draw_seed"}
        return {key: value for key, value in self.model_dump(exclude=left_out).items() if value is not None}


@dataclass(frozen=True)
class SweepOptions:
    """What is said of a sweep besides its config and what varies, in place of a sweep file; None where nothing is said.

    seeds: as for `read_seeds`.  halving, sampler: mappings, or texts such as "first=100000,eta=3".
    """

    seeds: Any = None
    trials: int | None = None
    draw_seed: int | None = None
    halving: Mapping[str, Any] | str | None = None
    sampler: Mapping[str, Any] | str | None = None

    def load(self, path: str | Path, overrides: Sequence[str]) -> Sweep:
        """The Sweep of a config or of a sweep file, and of the command line.  Raises ConfigError."""
        vary: dict[str, Any] = {}
        for key, values in map(read_override, overrides):
            if key in vary:
                raise ConfigError(f"the command line: {key} is given twice; list its values in one, as in {key}=V1,V2")
            vary[key] = values
        return load_sweep(path, vary, self)

    def as_values(self) -> Values:
        """The same options as keys of a sweep file.  Raises ConfigError."""
        given = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        for name in ("halving", "sampler"):
            if isinstance(given[name], str):
                words = [part.partition("=") for part in given[name].split(",")]
                given[name] = {key.strip(): parse_value(value, name) for key, _, value in words}
        return {name: value for name, value in given.items() if value is not None}

    def words(self) -> list[str]:
        """The same options on a command line."""
        given = {f"--{entry.name.replace('_', '-')}": getattr(self, entry.name) for entry in fields(self)}
        return [str(word) for flag, value in given.items() if value is not None for word in (flag, value)]


NO_OPTIONS = SweepOptions()


def load_sweep(path: str | Path, vary: Mapping[str, Any] | None = None, options: SweepOptions = NO_OPTIONS) -> Sweep:
    """The Sweep of a config or of a sweep file, which has the key `base`.  Raises ConfigError.

    What else is given takes the place of what a sweep file says.
    """
    path = find_config(path)
    values = read_config(path)
    return read_sweep(values if "base" in values else {"base": values}, str(path), vary, options)


def read_sweep(
    values: Mapping[str, Any],
    where: str,
    vary: Mapping[str, Any] | None = None,
    options: SweepOptions = NO_OPTIONS,
) -> Sweep:
    """The Sweep of a sweep file's values; what else is given takes the place of what they say.  Raises ConfigError."""
    given = options.as_values()
    try:
        file = SweepFile.model_validate({**values, **given})
    except ValidationError as error:
        raise ConfigError(explain(error, where, [*given], SweepFile)) from None
    base, place = file.base, where
    if isinstance(base, str):
        place = str(find_config(base))
        base = read_config(place)
    elif not isinstance(base, dict):
        raise ConfigError(f"{where}: base must be a config, its path or a recipe's name, but is {quoted(base)}")
    seeds = None if file.seeds is None else read_seeds(file.seeds)
    found = {"base": base, "seeds": seeds, "vary": {**file.vary, **(vary or {})}}
    return Sweep.model_construct(where=place, **{**dict(file), **found})


def check_trials(sweep: Sweep, trials: Sequence[Trial]) -> None:
    """Raise ConfigError, with all mistakes at once, where configs of trials cannot be used.

    The seed changes no mistake, so of trials with the same settings one is looked at.
    """
    different = {trial.label: trial for trial in trials}
    mistakes: dict[str, list[str]] = {}  # message to names of settings
    for label, trial in different.items():
        try:
            sweep.config(trial)
        except UserError as error:
            mistakes.setdefault(str(error).removeprefix("the command line: "), []).append(label or trial.name)
    if mistakes:
        count = sum(map(len, mistakes.values()))
        listed = [f"{name_few(names)}: {why}" for why, names in mistakes.items()]
        raise ConfigError(
            f"{count} of {len(different)} settings cannot be trained, so nothing was started -- {' -- '.join(listed)}"
        )


def _make_labels(found: Sequence[Settings]) -> list[str]:
    """A short name of each of the settings, which have the same keys: the last part of a key where that tells it."""
    short = {key: _as_name(end) for key, end in shorten_keys(list(found[0])).items()}
    labels = [
        "_".join(f"{short[key]}={_as_name(as_text(value))}" for key, value in settings.items()) for settings in found
    ]
    return [
        label if len(label) <= LONGEST and labels.count(label) == 1 else f"{label[: LONGEST - 9]}-{_hash(settings)}"
        for label, settings in zip(labels, found, strict=True)
    ]


def _as_name(text: str) -> str:
    """The text as part of a file's name, without spaces, brackets and quotes."""
    kept = (letter for letter in text if letter not in " []{}'\"")
    return "".join(letter if letter.isalnum() or letter in "-_.," else "-" for letter in kept)


def _hash(settings: Settings) -> str:
    return hashlib.sha256(as_text(settings).encode()).hexdigest()[:8]
