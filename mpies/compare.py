"""Repeats of the same config side by side: what is due to the method, and what to the seed."""

import json
from dataclasses import dataclass

import numpy as np

from mpies.config import differences
from mpies.keys import FREE_SECTIONS
from mpies.plots import AXES, COLOURS, MARKERS, WIDE, in_units, new_figure, number_axis


@dataclass(frozen=True)
class Group:
    """Runs (Curves) of one config with different seeds.  label: how it differs from the other groups."""

    label: str
    runs: list

    def final(self):
        """(r,) the newest evaluation of each run, NaN where there is none."""
        return np.array([run["eval_mean"][run.evaluated][-1] if run.evaluated.any() else np.nan for run in self.runs])

    def solved(self):
        """The runs that reached their target, twice, as training asks."""
        return [run for run in self.runs if run.reason == "solved"]

    def to_target(self, column):
        """(s,) what the solved runs had used up at their end."""
        return np.array([run[column][-1] for run in self.solved()])

    def on_grid(self, column, points=200):
        """Evaluations of all runs on a common grid: x (p,), y (r, p).

        A run that is over keeps its last value, so that the mean does not fall when the best are done.
        """
        runs = [run for run in self.runs if run.evaluated.any()]
        if not runs:
            return np.zeros(0), np.zeros((0, 0))
        x = [run[column][run.evaluated] for run in runs]
        going = [one[-1] for one, run in zip(x, runs, strict=True) if not run.reason]
        start, stop = max(one[0] for one in x), min(going) if going else max(one[-1] for one in x)
        grid = np.linspace(start, max(start, stop), points)
        y = [np.interp(grid, one, run["eval_mean"][run.evaluated]) for one, run in zip(x, runs, strict=True)]
        return grid, np.array(y)


def group_runs(runs):
    """Groups of Curves that differ in nothing but the seed (and how long and how closely they were watched).

    A seed that stands twice in a group counts once, its longest run.
    """
    groups: dict = {}
    for run in sorted(runs, key=len):
        computed = {key: run.config[key] for key in run.config if key not in ("seed", *FREE_SECTIONS)}
        groups.setdefault(json.dumps(computed, sort_keys=True), {})[run.config["seed"]] = run
    found = sorted((list(seeds.values()) for seeds in groups.values()), key=lambda found: str(found[0].path))
    labels = _labels([members[0].config for members in found])
    return [
        Group(label, sorted(members, key=lambda run: run.config["seed"]))
        for label, members in zip(labels, found, strict=True)
    ]


def _changed(configs):
    """The keys (dotted) in which any of these configs differs from the first, the seed aside."""
    return sorted({key for config in configs for key, _, _ in differences(configs[0], config)} - {"seed"})


def _value(config, key):
    for part in key.split("."):
        config = config.get(part) if isinstance(config, dict) else None
    return config


def _labels(configs):
    """Of each config the shortest way to say how it differs: its kinds, and what sets it apart within these."""
    kinds = [key for key in _changed(configs) if key.endswith(("kind", "environment.id"))]
    labels = []
    for config in configs:
        alike = [other for other in configs if all(_value(other, key) == _value(config, key) for key in kinds)]
        named = [str(value) for key in kinds if (value := _value(config, key)) is not None]
        named += [f"{key} {_value(config, key)}" for key in _changed(alike)[:3]]
        labels.append(", ".join(named) or f"{config['environment']['id']}, {config['solver']['kind']}")
    return labels


def draw_comparison(groups, axis, width=WIDE):
    """Evaluations against an axis of AXES: the mean over the seeds of each group, and from worst to best."""
    column = AXES[axis][0]
    figure, axes = new_figure(width, "mean over seeds, and from the worst to the best seed")
    label, size = in_units(axis, [run[column] for group in groups for run in group.runs])
    for number, group in enumerate(groups):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        x, y = group.on_grid(column)
        if not len(x):
            continue
        axes.fill_between(x / size, y.min(axis=0), y.max(axis=0), color=colour, alpha=0.15, linewidth=0)
        seeds = f"{len(y)} seed{'s' * (len(y) > 1)}"
        marks = {"marker": marker, "markevery": (number * 7, 40), "markersize": 5}
        axes.plot(x / size, y.mean(axis=0), color=colour, label=f"{group.label} ({seeds})", **marks)
    targets = {run.target for group in groups for run in group.runs} - {None}
    for target in targets:
        axes.axhline(target, color="black", linestyle="--", linewidth=1, label=f"target {target:g}")
    axes.set_xlabel(label)
    axes.set_ylabel("return of an episode, held out")
    number_axis(axes, axis)
    columns = 1 if width < 6 else 2
    figure.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
    return figure


HEADINGS = ("config", "runs", "solved", "evaluation, median", "quartiles", "steps to target", "seconds to target")


def tabulate(groups):
    """Rows of text under HEADINGS; of steps and seconds the median over the runs that were solved."""
    rows = []
    for group in groups:
        final = group.final()[np.isfinite(group.final())]
        median, quartiles = "-", "-"
        if len(final):
            low, middle, high = np.percentile(final, [25, 50, 75])
            median, quartiles = f"{middle:,.2f}", f"{low:,.2f} to {high:,.2f}"
        runs, solved = len(group.runs), len(group.solved())
        aimed = any(run.target is not None for run in group.runs)
        steps, seconds = (
            f"{np.median(group.to_target(column)):{form}}" if solved else "-"
            for column, form in (("steps", ",.0f"), ("seconds", ",.1f"))
        )
        counted = f"{solved} of {runs}" if aimed else "no target"
        rows.append((group.label, str(runs), counted, median, quartiles, steps, seconds))
    return rows
