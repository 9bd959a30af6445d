"""Record a run as results/NAME, where `mpies reproduce NAME` finds it; NAME is RECIPE or RECIPE-VARIANT.

python benchmarks/record.py runs/cartpole cartpole [--mark RETURN] [KEY=VALUE ...]    the overrides it was trained with

--mark is the mean return that counts as reached; by default the target, which may hold a margin.  Prints what goes
behind "Status:" in the recipe, configs/RECIPE.yaml; then `make docs`.
"""

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

import yaml

from mpies.config.loading import load_config
from mpies.runs.metrics import read_metrics
from mpies.runs.policy_file import find_policy
from mpies.tools.evaluate import evaluate_policy
from mpies.tools.reproduce import RESULTS, Record, describe, read_published, recipe_of
from mpies.views.curves import read_curves
from mpies.views.plots import draw_return, render

SMALL = 100_000  # bytes of a policy that is kept with its record
TOLERANCE = 0.15  # of the range of the recorded curve; other package builds give other curves, though similar ones
EPISODES = 100  # held-out episodes of the best policy


def record_run(run: Path, name: str, overrides: Sequence[str], mark: float | None) -> Record:
    """Record a run: metrics, plot, its policy if it is small, and the return of the policy on held-out episodes.

    Curves that others published are drawn beside it, if results/NAME/published.yaml has them.
    mark: mean return that counts as reached; None takes stop.target.
    """
    folder = RESULTS / name
    curves, rows = read_curves(run), read_metrics(run)
    result = evaluate_policy(run, EPISODES)
    mark = load_config(recipe_of(name), overrides).stop.target if mark is None else mark
    record: Record = {
        "overrides": list(overrides),
        "ended": curves.reason or "not run to its end",
        "mark": mark,
        "reached": mark is not None and result["mean"] >= mark,
        "seed": curves.config["seed"],
        "generation": int(rows[-1]["generation"]),
        "steps": int(rows[-1]["steps"]),
        "seconds": round(float(rows[-1]["seconds"]), 1),
        "ranks": int(rows[-1]["ranks"]),
        "evaluation": {
            "policy_of_generation": result["generation"],
            "episodes": EPISODES,
            "mean": round(result["mean"], 3),
            "interval_95": round(result["interval"], 3),
        },
        "tolerance": TOLERANCE,
        "versions": curves.versions,
    }
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(run / "metrics.csv", folder)
    if find_policy(run).stat().st_size < SMALL:
        shutil.copy(find_policy(run), folder / "policy.h5")
    (folder / "return.png").write_bytes(render(draw_return(curves, "steps", beside=read_published(name))))
    (folder / "record.yaml").write_text(yaml.safe_dump(dict(record), sort_keys=False))
    return record


def main() -> None:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--mark", type=float)
    options = parser.parse_args()
    record = record_run(options.run, options.name, options.overrides, options.mark)
    print("reached here:" if record["reached"] else "not reached:", describe(record))


if __name__ == "__main__":
    main()
