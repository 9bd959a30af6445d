"""Record runs of a recipe or variant as results/NAME, where `mpies reproduce NAME` finds them.

    mpies train cartpole --seeds 5 --out runs/cartpole
    python benchmarks/record.py runs/cartpole-seed-* cartpole      # or a folder with runs, such as that of a sweep
    make docs

All seeds must be recorded, also those that failed.  So a run with another seed beside the named ones must be named too.
The config of each run must be the recipe's; only the seed, trackers and `stop.seconds` may differ.  Seeds that
results/NAME has already stay as they are, unless they have gone on or come with other bits.

--mark is the mean return that counts as reached.  The default is the recorded mark, otherwise the target, which may be
higher than the mark as a margin.
"""

import argparse
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from mpies.config.loading import is_same, load_config, resolved, validate_config
from mpies.core.errors import ConfigError, RunError
from mpies.core.text import counted
from mpies.report.compare.curves import Curves, read_all_curves
from mpies.report.compare.statistics import bootstrap_interval, interquartile_mean
from mpies.report.document import find_seeds
from mpies.report.evaluate import evaluate_policy
from mpies.report.figures import BLUE, GREEN, MARKERS, new_panels, paper_style, render, set_axis
from mpies.report.records import (
    CUT_SHORT,
    RESULTS,
    Band,
    OverSeeds,
    Record,
    RecordedEvaluation,
    RecordedSeed,
    curve_of,
    describe_return,
    has_record,
    metrics_file,
    read_record,
    read_recorded_metrics,
    recipe_of,
)
from mpies.runs.formats.metrics import count_core_seconds, read_digests, read_metrics
from mpies.runs.formats.policy_file import find_policy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMALL = 100_000  # bytes of a policy that is kept with its record
EPISODES = 100  # held-out episodes of the best policy
TOLERANCE = 0.15  # of the range of a single curve; other package builds give other curves, though similar ones
LEAST_TOLERANCE = 0.05  # of the range of several curves

Points = list[tuple[float, float]]  # of a curve: environment steps and return


def find_differences(config: Mapping[str, Any], name: str) -> list[str]:
    """The keys in which a run's resolved config is not that of a recipe; seed, trackers and stop.seconds may differ."""

    def flatten(values: Mapping[str, Any]) -> dict[str, Any]:
        sections = {key: value if isinstance(value, dict) else {"": value} for key, value in values.items()}
        flat = {
            f"{section}.{key}".rstrip("."): value for section, keys in sections.items() for key, value in keys.items()
        }
        free = ("seed", "stop.seconds", "environment.instances", "environment.instances_per")
        return {key: value for key, value in flat.items() if key not in free and not key.startswith("tracking.")}

    expected = flatten(resolved(load_config(recipe_of(name))))
    found = flatten(resolved(validate_config(config, name)))
    return sorted(key for key in expected.keys() | found.keys() if not is_same(key, found.get(key), expected.get(key)))


def read_runs(paths: Sequence[Path], name: str, recorded: Sequence[int]) -> list[Curves]:
    """The runs at these paths and below these folders, by seed.  recorded: seeds that results/NAME has.

    Raises ConfigError for a run of another config, two runs of a seed, and where a seed would be left out.
    """
    runs, left_out = read_all_curves(paths)
    if left_out:
        raise ConfigError("; ".join(left_out))
    seeds = [run.config["seed"] for run in runs]
    if len({*seeds}) < len(seeds):
        raise ConfigError(f"{', '.join(str(run.path) for run in runs)}: two have the same seed; name one for each seed")
    for run in runs:
        if different := find_differences(run.config, name):
            raise ConfigError(f"{run.path}: is no run of {name}; these keys differ: {', '.join(different)}")
        missing = {other.config["seed"]: other.path for other in find_seeds(run)}
        missing = {seed: path for seed, path in missing.items() if seed not in (*seeds, *recorded)}
        if missing:
            named = ", ".join(f"seed {seed} ({path})" for seed, path in sorted(missing.items()))
            raise ConfigError(f"{run.path}: beside it is {named}, which would be left out; name all seeds")
    return sorted(runs, key=lambda run: int(run.config["seed"]))


def evaluate(run: Path, episodes: int) -> RecordedEvaluation | None:
    """Held-out episodes of a run's best policy; None where it left none, or episodes failed."""
    try:
        result = evaluate_policy(run, episodes)
    except RunError:
        return None
    if result["failures"]:
        return None
    return {
        "policy_of_generation": result["generation"],
        "episodes": episodes,
        "mean": round(result["mean"], 3),
        "interval_95": round(result["interval"], 3),
    }


def describe_run(run: Curves, episodes: int) -> RecordedSeed:
    """The entry of a run; `reached` is not yet known."""
    rows = read_metrics(run.path)
    last = rows[-1]
    return {
        "seed": run.config["seed"],
        "ended": run.reason or CUT_SHORT,
        "reached": False,
        "generation": int(last["generation"]),
        "steps": int(last["steps"]),
        "seconds": round(float(last["seconds"]), 1),
        "ranks": int(last["ranks"]),
        "core_seconds": round(count_core_seconds(rows), 1),
        "evaluation": evaluate(run.path, episodes),
    }


def summarize(seeds: Sequence[RecordedSeed]) -> OverSeeds | None:
    """The interquartile mean of the evaluations and its interval; None of fewer than two."""
    means = np.array([seed["evaluation"]["mean"] for seed in seeds if seed["evaluation"]])
    if len(means) < 2:
        return None
    ends = [round(end.item(), 3) for end in bootstrap_interval(means)]
    return {"interquartile_mean": round(interquartile_mean(means).item(), 3), "interval_95": ends}


def is_recorded(name: str, old: Record | None, run: Curves) -> bool:
    """Whether a record has this run of its seed.  Says so where the run has gone on since, or has other bits."""
    seed = run.config["seed"]
    if old is None or seed not in [one["seed"] for one in old["seeds"]]:
        return False
    recorded = [row["digest"] for row in read_recorded_metrics(name, old, seed)]
    digests = read_digests(run.path)
    if digests == recorded:
        return True
    if digests[: len(recorded)] == recorded:
        change = "has gone on since it was recorded"
    elif recorded[: len(digests)] == digests:
        change = "is shorter than the recorded run, with the same bits"
    else:
        change = "has other bits than the recorded run"
    print(f"{name}: seed {seed} {change}; the record is replaced")
    return False


def merge(
    name: str, given: Sequence[Curves], new: Sequence[Curves], old: Record | None, mark: float | None, episodes: int
) -> Record:
    """The Record of the seeds that were recorded before and of the new ones.

    given: all runs of this call; of those that are not new, a run with the same bits is recorded.  The versions are
    of the packages that all runs name.  Raises ConfigError where they differ.
    """
    entries = {run.config["seed"]: describe_run(run, episodes) for run in new}
    before = {seed["seed"]: seed for seed in old["seeds"]} if old else {}
    kept = before.keys() - {run.config["seed"] for run in given}
    versions = [run.versions for run in given] + ([old["versions"]] if old and kept else [])
    common = {package: versions[0][package] for package in versions[0] if all(package in one for one in versions)}
    if any(one[package] != version for package, version in common.items() for one in versions):
        raise ConfigError(f"{name}: the runs were trained with different versions of packages; train all with the same")
    seeds = [*(before | entries).values()]
    if mark is None:
        mark = old["mark"] if old else load_config(recipe_of(name)).stop.target
    for seed in seeds:
        evaluation = seed["evaluation"]
        seed["reached"] = mark is not None and evaluation is not None and evaluation["mean"] >= mark
    return {
        "mark": mark,
        "tolerance": 0.0,
        "over_seeds": summarize(seeds),
        "seeds": seeds,
        "versions": common,
    }


@paper_style()
def draw_seeds(name: str, record: Record) -> "Figure":
    """A plot of all recorded seeds against steps: evaluations, or members' means where there are none, and the mark.

    The band is what `mpies reproduce` compares with.  Curves that others published are drawn beside it.
    """
    figure, [axes] = new_panels(8.0, f"{name}, {counted(len(record['seeds']), 'seed')}")
    rows = [read_recorded_metrics(name, record, seed["seed"]) for seed in record["seeds"]]
    band = Band.of(rows)
    steps = np.unique(np.concatenate([curve[:, 0] for curve in band.curves]))
    means = np.array([np.interp(steps, curve[:, 0], curve[:, 1]) for curve in band.curves])
    low, high = means.min(axis=0), means.max(axis=0)
    axes.fill_between(steps, low, high, color=BLUE, alpha=0.15, linewidth=0, label="members' mean, range of the seeds")
    for number, one in enumerate(rows):
        points = np.array([[float(row["steps"]), float(row["eval_mean"])] for row in one if row["eval_mean"]])
        points = points if len(points) else curve_of(one)
        style: dict[str, Any] = {"color": BLUE, "linewidth": 1, "marker": "o", "markersize": 2.5}
        axes.plot(points[:, 0], points[:, 1], **style, label="evaluations of a seed" if number == 0 else None)
    if record["mark"] is not None:
        axes.axhline(record["mark"], color="black", linestyle="--", linewidth=1, label=f"mark {record['mark']:g}")
    for (title, published), marker in zip(read_published(name), MARKERS[1:], strict=False):
        points = np.array(published, float)
        axes.plot(points[:, 0], points[:, 1], color=GREEN, marker=marker, markersize=4, label=title)
    axes.set_ylabel("return of an episode")
    set_axis(axes, "steps")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def read_published(name: str) -> list[tuple[str, Points]]:
    """Curves that others published of a recipe, each with its name; often none."""
    file = RESULTS / name / "published.yaml"
    if not file.exists():
        return []
    return [(entry["curve"], [tuple(point) for point in entry["points"]]) for entry in yaml.safe_load(file.read_text())]


def choose_tolerance(band: Band) -> float:
    """How far a further curve may be outside the Band of the recorded ones, as a share of their range.

    Of several curves it is the largest distance of one of them from the band of the others, but at least
    LEAST_TOLERANCE.
    """
    curves, spread = band.curves, band.spread
    if len(curves) == 1:
        return TOLERANCE
    others = [Band([*curves[:k], *curves[k + 1 :]]) for k in range(len(curves))]
    distances = [rest.measure_distance(curve) / spread for rest, curve in zip(others, curves, strict=True)]
    return max(LEAST_TOLERANCE, *distances)


def record_runs(paths: Sequence[Path], name: str, mark: float | None = None, episodes: int = EPISODES) -> Record:
    """Record runs: metrics, plot, the first seed's policy if it is small, and returns on held-out episodes."""
    folder, old = RESULTS / name, read_record(name) if has_record(name) else None
    runs = read_runs(paths, name, [seed["seed"] for seed in old["seeds"]] if old else [])
    new = [run for run in runs if not is_recorded(name, old, run)]
    record = merge(name, runs, new, old, mark, episodes)
    first = record["seeds"][0]["seed"]
    folder.mkdir(parents=True, exist_ok=True)
    for run in new:
        shutil.copy(run.path / "metrics.csv", metrics_file(name, record, run.config["seed"]))
        if run.config["seed"] == first and record["seeds"][0]["evaluation"]:
            policy = find_policy(run.path)
            if policy.stat().st_size < SMALL:
                shutil.copy(policy, folder / "policy.h5")
    band = Band.of(read_recorded_metrics(name, record, seed["seed"]) for seed in record["seeds"])
    record["tolerance"] = round(choose_tolerance(band), 4)
    (folder / "return.png").write_bytes(render(draw_seeds(name, record)))
    (folder / "record.yaml").write_text(yaml.safe_dump(dict(record), sort_keys=False))
    return record


def main() -> None:
    """Record the runs that the command line names."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--mark", type=float)
    parser.add_argument("--episodes", type=int, default=EPISODES)
    options = parser.parse_args()
    try:
        record = record_runs(options.runs, options.name, options.mark, options.episodes)
    except (ConfigError, RunError) as error:
        parser.exit(2, f"record: {error}\n")
    seeds = counted(len(record["seeds"]), "seed")
    print(f"{options.name}: {describe_return(record)}, {seeds}, {record['tolerance']:.0%} allowed")


if __name__ == "__main__":
    main()
