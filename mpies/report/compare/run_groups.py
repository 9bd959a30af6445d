"""Groups of runs that differ in their seed alone, and short names of how the groups differ."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mpies.config.loading import flatten_settings
from mpies.config.schema import BACKEND
from mpies.report.compare.curves import Curves, Floats

Settings = dict[str, Any]  # dotted keys of a config to values

SHORT = 3  # settings that a label names, unless more are needed to tell two labels apart


@dataclass(frozen=True, eq=False)
class RunGroup:
    """Runs of one config with different seeds.

    task: environment and its arguments; returns of different tasks cannot be compared.
    label: how the config differs from those of the other groups of the same task.
    settings: all that can change a result, without the seed.
    left_out: runs that have the seed of one of `runs`, which is at least as long.
    """

    task: str
    label: str
    settings: Settings
    runs: list[Curves]
    left_out: list[Curves] = field(default_factory=list)

    def tell_left_out(self) -> Iterator[str]:
        """Why each run is left out that is, in one line."""
        kept = {run.config.get("seed", 0): run.path for run in self.runs}
        for run in self.left_out:
            yield f"{run.path}: same config and seed as {kept[run.config.get('seed', 0)]}"

    def final(self) -> Floats:
        """(r,) the newest evaluation's mean return of each run, NaN where there is none."""
        return np.array(
            [run["eval_mean"][run.is_evaluated][-1] if run.is_evaluated.any() else np.nan for run in self.runs]
        )

    @property
    def solved(self) -> list[Curves]:
        """The runs that ended because their target was reached and confirmed."""
        return [run for run in self.runs if run.reason == "solved"]

    def at_target(self, column: str) -> float | None:
        """The last value of a column of metrics.csv, median over the solved runs; None where there are none."""
        return float(np.median([run[column][-1] for run in self.solved])) if self.solved else None

    @property
    def targets(self) -> list[float]:
        """The different targets of the runs."""
        return sorted({run.target for run in self.runs if run.target is not None})

    def extent(self, column: str, drawn: str) -> tuple[float, float] | None:
        """The first and the last value of `column` at which every run of the group has a value of `drawn`.

        A run that has ended keeps its last value, so that a group does not get worse when its best runs end.  The
        extent ends where the first unfinished run is now.  None where no run has a value.
        """
        points = self._points(column, drawn)
        if not points:
            return None
        start = max(x[0] for _, x, _ in points)
        unfinished = [x[-1] for run, x, _ in points if not run.reason]
        stop = min(unfinished) if unfinished else max(x[-1] for _, x, _ in points)
        return start, max(start, stop)

    def sample(self, grid: Floats, column: str, drawn: str) -> Floats:
        """(runs, points) `drawn` of each run that has values, where `column` is `grid` (points,)."""
        points = self._points(column, drawn)
        return np.array([np.interp(grid, x, y) for _, x, y in points]).reshape(len(points), len(grid))

    def _points(self, column: str, drawn: str) -> list[tuple[Curves, Floats, Floats]]:
        """The runs that have values of `drawn`, with `column` and `drawn` in the generations that have one."""
        found = []
        for run in self.runs:
            y = run.columns.get(drawn, np.full(len(run), np.nan))
            at = np.isfinite(y)
            if at.any():
                found.append((run, run[column][at], y[at]))
        return found


def group_runs(runs: Sequence[Curves], also: Sequence[str] = ()) -> list[RunGroup]:
    """Groups of runs whose configs are equal but for the seed and the sections that change no result.

    Of several runs with the same config and seed only the longest counts.  Groups of the same task are neighbours.
    also: as for `read_settings`.
    """
    groups: dict[str, RunGroup] = {}  # by the text of their settings
    ordered_runs = sorted(runs, key=len)[::-1]  # of a seed, the longest comes first
    all_settings = settle_backends([read_settings(run.config, also) for run in ordered_runs])
    for run, settings in zip(ordered_runs, all_settings, strict=True):
        group = groups.setdefault(settings_key(settings), RunGroup(task_of(settings), "", settings, []))
        has_seed = run.config.get("seed", 0) in [other.config.get("seed", 0) for other in group.runs]
        (group.left_out if has_seed else group.runs).append(run)
    ordered = sorted(reversed(groups.values()), key=lambda group: (group.task, str(group.runs[-1].path)))
    for group in ordered:
        group.runs.sort(key=lambda run: order_of(run.config.get("seed", 0)))
    labels = label_settings([group.settings for group in ordered])
    return [replace(group, label=label) for group, label in zip(ordered, labels, strict=True)]


def order_of(seed: Any) -> tuple[bool, Any]:
    """What sorts seeds; a damaged config may have a text, which comes last."""
    return isinstance(seed, str), seed or 0


def group_by_task(groups: Sequence[RunGroup]) -> dict[str, list[RunGroup]]:
    """The groups of each task."""
    found: dict[str, list[RunGroup]] = {}
    for group in groups:
        found.setdefault(group.task, []).append(group)
    return found


def read_settings(config: Mapping[str, Any], also: Sequence[str] = ()) -> Settings:
    """All settings of a resolved config that can change a result, without the seed.

    also: dotted keys that change no result and are told apart all the same, such as stop.generations.
    """
    held = flatten_settings(config)
    held = {key: value for key, value in held.items() if key != "seed" and not key.startswith("versions.")}
    return held | {key: look_up(config, key) for key in also}


def settle_backends(found: Sequence[Settings]) -> list[Settings]:
    """The settings with the backend of each run that has auto: that of the others which are equal but for it.

    Runs of an earlier mpies have auto, where those of this one have what it meant.  It stays where others have several.
    """
    others: dict[str, set[str]] = {}
    keys = [settings_key({key: value for key, value in one.items() if key != BACKEND}) for one in found]
    for key, one in zip(keys, found, strict=True):
        others.setdefault(key, set()).add(str(one.get(BACKEND, "auto")))
    settled = []
    for key, one in zip(keys, found, strict=True):
        known = others[key] - {"auto"}
        is_auto = one.get(BACKEND) == "auto" and len(known) == 1
        settled.append({**one, BACKEND: next(iter(known))} if is_auto else one)
    return settled


def look_up(config: Mapping[str, Any], key: str) -> Any:
    """The value of a dotted key, None where it is absent."""
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def settings_key(settings: Settings) -> str:
    """A text that is the same for equal settings."""
    return json.dumps(settings, sort_keys=True, default=str)


def task_of(settings: Settings) -> str:
    """The environment and the arguments of its constructor, or the test function and its dimension."""
    prefix = "environment.kwargs."
    arguments = [f"{key.removeprefix(prefix)} {settings[key]}" for key in sorted(settings) if key.startswith(prefix)]
    dimension = settings.get("environment.dimension")
    arguments += [] if dimension is None else [f"{dimension} parameters"]
    return ", ".join([str(settings.get("environment.id")).removeprefix("function:"), *arguments])


def changed_keys(found: Sequence[Settings]) -> list[str]:
    """The keys that have different values, or are absent from some, in their order."""
    missing = object()
    keys = dict.fromkeys(key for settings in found for key in settings)
    return [key for key in keys if any(one.get(key, missing) != found[0].get(key, missing) for one in found)]


def shorten_keys(keys: Sequence[str]) -> dict[str, str]:
    """Each key to the shortest end of it that no other key has: solver.sigma to sigma."""
    short = {}
    for key in keys:
        parts = key.split(".")
        ends = (".".join(parts[-count:]) for count in range(1, len(parts) + 1))
        short[key] = next((end for end in ends if sum(f".{one}".endswith(f".{end}") for one in keys) == 1), key)
    return short


def label_settings(found: Sequence[Settings]) -> list[str]:
    """A short label of each of the settings: how they differ from the others of the same task.

    First the kinds that differ, then up to SHORT keys that differ within these kinds, or more where some would still
    have the same label.  Where nothing differs, the label is the solver's kind.
    """
    by_task: dict[str, list[int]] = {}
    for number, settings in enumerate(found):
        by_task.setdefault(task_of(settings), []).append(number)
    labels = [""] * len(found)
    for numbers in by_task.values():
        same_task = [found[number] for number in numbers]
        kinds = [key for key in changed_keys(same_task) if key.endswith("kind")]
        by_kinds: dict[tuple[str, ...], list[int]] = {}
        for number in numbers:
            names = tuple(str(found[number][key]) for key in kinds if found[number].get(key) is not None)
            by_kinds.setdefault(names, []).append(number)
        for names, same_kinds in by_kinds.items():
            for number, differing in zip(same_kinds, _differing([found[n] for n in same_kinds]), strict=True):
                labels[number] = ", ".join([*names, *differing]) or str(found[number].get("solver.kind"))
    return labels


def _differing(found: Sequence[Settings]) -> list[tuple[str, ...]]:
    """Differing keys with their values, of each of the settings of the same kinds: as many as tell them apart."""
    keys = changed_keys(found)
    short = shorten_keys(keys)
    texts = [tuple(f"{short[key]} {format_setting(one.get(key))}" for key in keys) for one in found]
    count = SHORT
    while count < len(keys) and len({text[:count] for text in texts}) < len({*texts}):
        count += 1
    return [text[:count] for text in texts]


def format_setting(value: Any) -> str:
    """A value of a config for people."""
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
