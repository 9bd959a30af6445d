"""What the Python API costs: callbacks, and `mpies.train(ranks=N)` beside `mpirun -n N mpies train`.

    python benchmarks/api_overhead.py [--repeats 5] [--ranks 2] [--json FILE] [CONFIG] [KEY=VALUE ...]

1. Seconds of wall time a generation of `mpies.train` in this process, without callbacks, with one that does nothing,
   with one that works for 1 ms, with one that sleeps for 1 ms, and with one that asks for the policy; each between the
   first and the last generation.
2. Seconds a generation of `mpies.train(ranks=N, callbacks=...)` and of `mpirun -n N mpies train`, by the run's clock.
3. Milliseconds that `import mpies` takes beyond `import numpy`.

All of a kind take turns, so that a machine whose speed drifts favours none.  The medians are printed, with the ratio of
each to the first of its kind, taken repeat by repeat.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import mpies
from mpies.comm import mpiexec
from mpies.runs.metrics import read_metrics

# No evaluation and no plots: they have their own times.
FIXED = ["evaluation.every=0", "evaluation.episodes=1", "stop.target=null"]


def nothing(run: mpies.Run, row: dict) -> None:
    """A callback that does nothing."""


def take_a_millisecond(run: mpies.Run, row: dict) -> None:
    """A callback that takes 1 ms."""
    until = time.perf_counter() + 0.001
    while time.perf_counter() < until:
        pass


def sleep(run: mpies.Run, row: dict) -> None:
    """A callback that sleeps for 1 ms."""
    time.sleep(0.001)


def ask_for_policy(run: mpies.Run, row: dict) -> None:
    """A callback that uses the policy of the generation."""
    run.policy().parameters.sum()


def in_process(config: str, overrides: list[str], folder: Path, callback: Callable | None) -> float:
    """Seconds of wall time a generation, in this process."""
    times: list[float] = []

    def clock(run: mpies.Run, row: dict) -> None:
        times.append(time.perf_counter())

    callbacks = [clock, callback] if callback else [clock]
    mpies.train(config, *overrides, *FIXED, out=folder, callbacks=callbacks, progress=False)
    return (times[-1] - times[0]) / (len(times) - 1)


def seconds_by_clock(folder: Path) -> float:
    """Seconds a generation of a run, by its own clock, but for the first."""
    seconds = [float(row["seconds"]) for row in read_metrics(folder)]
    return (seconds[-1] - seconds[0]) / (len(seconds) - 1)


def as_job(config: str, overrides: list[str], folder: Path, ranks: int) -> float:
    """Seconds a generation of a job of its own, which this process follows."""
    mpies.train(config, *overrides, *FIXED, out=folder, ranks=ranks, callbacks=nothing, progress=False)
    return seconds_by_clock(folder)


def by_mpirun(config: str, overrides: list[str], folder: Path, ranks: int) -> float:
    """Seconds a generation of `mpirun -n RANKS mpies train`."""
    arguments = ["train", config, "--out", str(folder), *overrides, *FIXED]
    done = mpiexec.run(mpiexec.command(mpiexec.find(), ranks, arguments))
    if done.returncode:
        sys.exit(f"mpies train ended with code {done.returncode}: {done.stderr[-2000:]}")
    return seconds_by_clock(folder)


def import_time(module: str) -> float:
    """Seconds of a fresh Python that imports a module."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
    return time.perf_counter() - began


def measure(kinds: dict[str, Callable[[], float]], repeats: int) -> dict[str, dict[str, float]]:
    """Kind to the median of its seconds and of their ratio to the first kind's; the kinds take turns."""
    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(repeats):
        for kind, run in kinds.items():
            taken[kind].append(run())
    first = next(iter(taken.values()))
    return {
        kind: {
            "seconds": statistics.median(values),
            "ratio": statistics.median(value / one for value, one in zip(values, first, strict=True)),
            "more": statistics.median(value - one for value, one in zip(values, first, strict=True)),
        }
        for kind, values in taken.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", default="cartpole")
    parser.add_argument("overrides", nargs="*", default=["stop.generations=60", "solver.population=256"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the result to this file, too")
    arguments = parser.parse_args()
    config, overrides, ranks = arguments.config, arguments.overrides, arguments.ranks
    os.environ["MPIES_PICTURES"] = "0"
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        number = iter(range(10**6))

        def new() -> Path:
            return Path(folder) / str(next(number))

        callbacks = {
            "none": None,
            "nothing": nothing,
            "1 ms": take_a_millisecond,
            "1 ms asleep": sleep,
            "the policy": ask_for_policy,
        }
        results["callbacks, seconds a generation"] = measure(
            {
                name: lambda callback=callback: in_process(config, overrides, new(), callback)
                for name, callback in callbacks.items()
            },
            arguments.repeats,
        )
        results[f"{ranks} ranks, seconds a generation"] = measure(
            {
                "mpirun": lambda: by_mpirun(config, overrides, new(), ranks),
                "ranks=": lambda: as_job(config, overrides, new(), ranks),
            },
            arguments.repeats,
        )
    results["imports, seconds"] = measure(
        {"numpy": lambda: import_time("numpy"), "numpy, mpies": lambda: import_time("numpy, mpies")},
        3 * arguments.repeats,
    )
    for title, kinds in results.items():
        print(title)
        for kind, values in kinds.items():
            more = f"{1000 * values['more']:+9.3f} ms"
            print(f"    {kind:<14} {1000 * values['seconds']:10.3f} ms {more} {values['ratio']:8.4f} of the first")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
