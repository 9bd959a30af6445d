"""Generations of short episodes on 4 ranks for half an hour: does memory or do file handles grow?

    python benchmarks/soak.py [--minutes 30] [--json FILE]

Samples every rank's private memory and open files from /proc and compares the medians of the first and the
last quarter of the time (the first minute, when everything is being set up, left out).
"""

import argparse
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

CONFIG = Path(__file__).with_name("faults.yaml")
RANKS = 4


def private_kilobytes(pid: str) -> int:
    """Memory that a process has for itself, in which a leak would show."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(kilobytes) for kilobytes in re.findall(r"^Private_\w+: +(\d+) kB", text, re.M))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mpies-soak-") as folder:
        out = Path(folder) / "run"
        stop = ["stop.generations=100000000", f"stop.seconds={100 * 60 * options.minutes}"]
        command = mpiexec.command(mpiexec.find(), RANKS, ["train", str(CONFIG), "--out", str(out), *stop])
        job = subprocess.Popen(command, env=mpiexec.environment(), stdout=subprocess.DEVNULL, start_new_session=True)
        time.sleep(min(60, 6 * options.minutes))
        samples, end = [], time.monotonic() + 60 * options.minutes
        while time.monotonic() < end and job.poll() is None:
            pids = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
            memory = [private_kilobytes(pid) for pid in pids]
            files = [len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids]
            samples.append((sum(memory), sum(files)))
            time.sleep(5)
        ended_early = job.poll() is not None
        generations = len(read_metrics(out))
        job.terminate()
        job.wait()
    quarter = max(1, len(samples) // 4)
    results = {"minutes": options.minutes, "ranks": RANKS, "generations": generations, "ended_early": ended_early}
    for column, name in enumerate(("private_kB", "open_files")):
        first, last = (statistics.median(s[column] for s in part) for part in (samples[:quarter], samples[-quarter:]))
        results |= {f"{name}_first_quarter": first, f"{name}_last_quarter": last, f"{name}_growth": last / first - 1}
    print(json.dumps(results, indent=1))
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    sys.exit(ended_early or results["private_kB_growth"] > 0.02 or results["open_files_growth"] > 0.02)


if __name__ == "__main__":
    main()
