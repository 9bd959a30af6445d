"""Seconds from `mpirun` to the first member, and which imports they go into.

    python benchmarks/start_up.py [--ranks 2,16] [--repeats 5] [--json FILE] [CONFIG] [KEY=VALUE ...]

Real `mpies train` runs of one generation; the time is that from the start of the command until metrics.csv has its
row, less the seconds of the generation in that row.  Then one rank's imports by package, by `python -X importtime`:
a package's own modules, without those of other packages that they import.
"""

import argparse
import collections
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mpies.comm import mpiexec
from mpies.runs.metrics import read_metrics

IMPORT = re.compile(r"import time: +(\d+) \| +(\d+) \| +(\S+)")
GENERATION = ["stop.generations=1", "evaluation.every=0", "evaluation.episodes=1"]


def train(config: str | Path, overrides: list[str], out: Path) -> list[str]:
    """Arguments of mpies for one generation."""
    return ["train", str(config), "--out", str(out), *overrides, *GENERATION]


def seconds_to_first_member(ranks: int, config: str | Path, overrides: list[str]) -> float:
    """Seconds from the start of mpirun until the first member is played."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        began = time.perf_counter()
        command = mpiexec.command(mpiexec.find(), ranks, train(config, overrides, out))
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        job = subprocess.Popen(command, env=mpiexec.environment(), **pipes)
        while not (rows := read_metrics(out)) and job.poll() is None:
            time.sleep(0.005)
        seconds = time.perf_counter() - began
        _, stderr = job.communicate()
        if job.returncode or not rows:
            sys.exit(f"mpies train ended with code {job.returncode}: {stderr.decode()[-2000:]}")
        return seconds - float(rows[0]["seconds"])


def imports(config: str | Path, overrides: list[str]) -> dict[str, float]:
    """Milliseconds of each package's own modules in one rank, the largest first."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = train(config, overrides, Path(folder) / "run")
        command = [sys.executable, "-X", "importtime", "-m", "mpies", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    spent: collections.Counter = collections.Counter()
    for own, _, name in IMPORT.findall(done.stderr):
        spent[name.split(".")[0]] += int(own) / 1000
    return dict(spent.most_common())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", nargs="?", default=Path(__file__).parent.parent / "configs/lunar_lander.yaml")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--ranks", default="2,16")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json")
    options = parser.parse_args()
    results = {}
    for ranks in map(int, options.ranks.split(",")):
        seconds = [seconds_to_first_member(ranks, options.config, options.overrides) for _ in range(options.repeats)]
        results[ranks] = seconds
        print(f"{ranks:>3} ranks: {statistics.median(seconds):6.2f} s to the first member ", end="")
        print(f"(min {min(seconds):.2f}, max {max(seconds):.2f}, {options.repeats} repeats)", flush=True)
    spent = imports(options.config, options.overrides)
    print(f"imports of a rank: {sum(spent.values()):.0f} ms, of which")
    for name, milliseconds in list(spent.items())[:12]:
        print(f"  {name:<24} {milliseconds:7.0f} ms")
    if options.json:
        Path(options.json).write_text(json.dumps({"seconds": results, "import_milliseconds": spent}, indent=1))


if __name__ == "__main__":
    main()
