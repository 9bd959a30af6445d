"""Compare configs over several seeds each, so that a difference can be told from chance."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mpies.config.loading import differences
from mpies.config.schema import FREE_SECTIONS
from mpies.errors import ConfigError
from mpies.views.curves import Curves
from mpies.views.plots import AXES, COLOURS, MARKERS, WIDE, format_ticks, new_figure, render, scale_axis, write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]

HEADINGS = ("config", "runs", "solved", "evaluation, median", "quartiles", "steps to target", "seconds to target")


@dataclass(frozen=True)
class Group:
    """Runs of one config with different seeds.  label: how the config differs from those of the other groups."""

    label: str
    runs: list[Curves]

    def final(self) -> Floats:
        """(r,) the newest evaluation's mean return of each run, NaN where there is none."""
        return np.array(
            [run["eval_mean"][run.is_evaluated][-1] if run.is_evaluated.any() else np.nan for run in self.runs]
        )

    def solved(self) -> list[Curves]:
        """The runs that ended because their target was reached and confirmed."""
        return [run for run in self.runs if run.reason == "solved"]

    def at_target(self, column: str) -> Floats:
        """(s,) the last value of a column of metrics.csv, of each of the s solved runs."""
        return np.array([run[column][-1] for run in self.solved()])

    def interpolate(self, column: str, points: int = 200) -> tuple[Floats, Floats]:
        """Evaluations of all runs on a common grid: values of `column` (points,), mean returns (runs, points).

        A run that has ended keeps its last mean return, so that the group's mean does not fall when its best runs
        end.  The grid ends where the first unfinished run is now.  Both are empty where no run was evaluated.
        """
        runs = [run for run in self.runs if run.is_evaluated.any()]
        if not runs:
            return np.zeros(0), np.zeros((0, 0))
        x = [run[column][run.is_evaluated] for run in runs]
        unfinished = [one[-1] for one, run in zip(x, runs, strict=True) if not run.reason]
        start, stop = max(one[0] for one in x), min(unfinished) if unfinished else max(one[-1] for one in x)
        grid = np.linspace(start, max(start, stop), points)
        y = [np.interp(grid, one, run["eval_mean"][run.is_evaluated]) for one, run in zip(x, runs, strict=True)]
        return grid, np.array(y)


def group_runs(runs: Sequence[Curves]) -> list[Group]:
    """Groups of runs whose configs are equal but for the seed and the sections that change no result.

    Of several runs with the same config and seed only the longest counts.
    """
    by_config: dict[str, dict[int, Curves]] = {}  # config as JSON, seed
    for run in sorted(runs, key=len):
        key = {name: run.config[name] for name in run.config if name not in ("seed", *FREE_SECTIONS)}
        by_config.setdefault(json.dumps(key, sort_keys=True), {})[run.config["seed"]] = run
    groups = sorted((list(seeds.values()) for seeds in by_config.values()), key=lambda group: str(group[0].path))
    labels = _labels([group[0].config for group in groups])
    return [
        Group(label, sorted(group, key=lambda run: run.config["seed"]))
        for label, group in zip(labels, groups, strict=True)
    ]


def _changed_keys(configs: Sequence[dict[str, Any]]) -> list[str]:
    """The dotted keys, without the seed, in which any of the configs differs from the first."""
    return sorted({key for config in configs for key, _, _ in differences(configs[0], config)} - {"seed"})


def _value(config: Any, key: str) -> Any:
    """The value of a dotted key, None where it is absent."""
    for part in key.split("."):
        config = config.get(part) if isinstance(config, dict) else None
    return config


def _labels(configs: Sequence[dict[str, Any]]) -> list[str]:
    """A short label of each config: the kinds that differ, then up to three keys that differ within these kinds."""
    kinds = [key for key in _changed_keys(configs) if key.endswith(("kind", "environment.id"))]
    labels = []
    for config in configs:
        same_kinds = [other for other in configs if all(_value(other, key) == _value(config, key) for key in kinds)]
        parts = [str(value) for key in kinds if (value := _value(config, key)) is not None]
        parts += [f"{key} {_value(config, key)}" for key in _changed_keys(same_kinds)[:3]]
        labels.append(", ".join(parts) or f"{config['environment']['id']}, {config['solver']['kind']}")
    return labels


def draw_comparison(groups: Sequence[Group], axis: str, width: float = WIDE) -> "Figure":
    """A plot of evaluations against an axis of AXES: each group's mean over its seeds, and the range of its seeds."""
    column = AXES[axis][0]
    figure, axes = new_figure(width, "mean over seeds, and from the worst to the best seed")
    label, size = scale_axis(axis, [run[column] for group in groups for run in group.runs])
    for number, group in enumerate(groups):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        x, y = group.interpolate(column)
        if not len(x):
            continue
        axes.fill_between(x / size, y.min(axis=0), y.max(axis=0), color=colour, alpha=0.15, linewidth=0)
        name = f"{group.label} ({len(y)} seed{'s' * (len(y) > 1)})"
        marks: dict[str, Any] = {"marker": marker, "markevery": (number * 7, 40), "markersize": 5}
        axes.plot(x / size, y.mean(axis=0), color=colour, label=name, **marks)
    for target in sorted({run.target for group in groups for run in group.runs if run.target is not None}):
        axes.axhline(target, color="black", linestyle="--", linewidth=1, label=f"target {target:g}")
    axes.set_xlabel(label)
    axes.set_ylabel("return of an episode, held out")
    format_ticks(axes, axis)
    figure.legend(loc="outside lower center", ncols=1 if width < 6 else 2, frameon=False, fontsize=8)
    return figure


def tabulate(groups: Sequence[Group]) -> list[tuple[str, ...]]:
    """A row of text under HEADINGS for each group.  Steps and seconds are medians over the solved runs."""
    rows: list[tuple[str, ...]] = []
    for group in groups:
        final = group.final()[np.isfinite(group.final())]
        median, quartiles = "-", "-"
        if len(final):
            low, middle, high = np.percentile(final, [25, 50, 75])
            median, quartiles = f"{middle:,.2f}", f"{low:,.2f} to {high:,.2f}"
        runs, solved = len(group.runs), len(group.solved())
        has_target = any(run.target is not None for run in group.runs)
        steps, seconds = (
            f"{np.median(group.at_target(column)):{form}}" if solved else "-"
            for column, form in (("steps", ",.0f"), ("seconds", ",.1f"))
        )
        share = f"{solved} of {runs}" if has_target else "no target"
        rows.append((group.label, str(runs), share, median, quartiles, steps, seconds))
    return rows


def print_table(groups: Sequence[Group]) -> None:
    """Print `tabulate` on standard output, as wide as the terminal, or 140 columns in a file."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(*HEADINGS, box=box.SIMPLE)
    for row in tabulate(groups):
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def write_comparison(groups: Sequence[Group], out: str | Path, width: float = WIDE) -> Iterator[Path]:
    """Write comparison_vs_time.png and its like into the folder `out`; yields the path of each when it is written.

    Raises ConfigError where the folder cannot be made, and RunError where a file cannot be written.
    """
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be made ({error.strerror})") from None
    for axis in AXES:
        path = Path(out) / f"comparison_vs_{axis}.png"
        write_file(path, render(draw_comparison(groups, axis, width)))
        yield path
