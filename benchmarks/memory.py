"""Memory of a node's ranks: one noise table, not one each.

    python benchmarks/memory.py [--ranks 4] [--size 100000000]

Starts a real `mpirun -n 4 mpies train` and, while it trains, reads /proc/PID/smaps of its ranks.  The kernel's PSS
counts a page that k processes map as 1/k of a page for each, so the sum over the ranks is what they really occupy;
RSS counts it whole for each.  --json FILE keeps the figures.  Linux only.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from mpies.comm import mpiexec
from mpies.runs.metrics import read_metrics

MAPPING = re.compile(r"[0-9a-f]+-[0-9a-f]+ (\S+) \S+ (\S+) (\d+) *(.*)")  # flags, device, inode, name


def ranks_below(parent: int) -> list[int]:
    """Processes started, directly or not, by `parent` that run `mpies train`."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue  # it has ended meanwhile

    def descends(process: int) -> bool:
        while process in parents and process != parent:
            process = parents[process]
        return process == parent

    ranks = []
    for process in parents:
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0") if descends(process) else []
        if process != parent and words[1:4] == [b"-m", b"mpies", b"train"]:
            ranks.append(process)
    return sorted(ranks)


def mappings(process: int) -> list[tuple[str, str, dict[str, int]]]:
    """(inode, name, {field: bytes}) of each mapping of a process."""
    entries: list[tuple[str, str, dict[str, int]]] = []
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        if match := MAPPING.fullmatch(line):
            entries.append((f"{match[2]}/{match[3]}", match[4], {}))
        elif line.endswith(" kB"):
            name, value = line.split(":")
            entries[-1][2][name] = 1024 * int(value.split()[0])
    return entries


def measure(process: int, table: int) -> dict[str, Any]:
    """Of one rank: bytes of RSS and PSS, and of the mapping that is as large as the table (its inode, RSS, PSS)."""
    every = mappings(process)
    large = [entry for entry in every if table <= entry[2]["Size"] <= table + 2**21 and not entry[0].endswith("/0")]
    inode, _, window = large[0] if large else ("none", "", {"Rss": 0, "Pss": 0})
    return {
        "process": process,
        "rss": sum(sizes["Rss"] for *_, sizes in every),
        "pss": sum(sizes["Pss"] for *_, sizes in every),
        "table_inode": inode,
        "table_rss": window["Rss"],
        "table_pss": window["Pss"],
        "large_mappings": sum(entry[2]["Rss"] >= table for entry in every),
    }


def train_and_measure(options: argparse.Namespace, folder: str) -> list[dict[str, Any]]:
    """The `measure` of each rank of a run that has made some generations."""
    config, run = Path(folder) / "sphere.yaml", Path(folder) / "run"
    config.write_text(
        f"environment: {{id: function:sphere, dimension: 1000}}\nnoise: {{size: {options.size}}}\n"
        "evaluation: {every: 0}\nstop: {generations: 1000000000}\n"
    )
    arguments = ["train", str(config), "--out", str(run)]
    command = mpiexec.command(mpiexec.find(), options.ranks, arguments)
    with open(Path(folder) / "log", "w+") as log:
        job = subprocess.Popen(
            command, env=mpiexec.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            deadline = time.monotonic() + options.patience
            while len(read_metrics(run)) < options.generations:
                if job.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    sys.exit(f"the run made no {options.generations} generations:\n{log.read()[-2000:]}")
                time.sleep(0.2)
            return [measure(process, 4 * options.size) for process in ranks_below(job.pid)]
        finally:
            if job.poll() is None:
                job.terminate()  # mpirun hands it on: the ranks write a checkpoint and leave
                try:
                    job.wait(30)
                except subprocess.TimeoutExpired:
                    job.kill()
                    job.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--size", type=int, default=100_000_000, help="normals in the table")
    parser.add_argument("--generations", type=int, default=20, help="generations made before it is measured")
    parser.add_argument("--patience", type=float, default=120, help="seconds to wait for them")
    parser.add_argument("--json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ranks = train_and_measure(options, folder)
    table = 4 * options.size
    print(f"{'rank process':>14} {'RSS':>10} {'PSS':>10} {'of it table':>12}  in MB")
    for rank in ranks:
        sizes = (rank["rss"], rank["pss"], rank["table_pss"])
        print(f"{rank['process']:>14} {sizes[0] / 1e6:>10,.0f} {sizes[1] / 1e6:>10,.0f} {sizes[2] / 1e6:>12,.0f}")
    totals = {name: sum(rank[name] for rank in ranks) for name in ("rss", "pss", "table_pss")}
    sizes = tuple(totals.values())
    print(f"{'sum':>14} {sizes[0] / 1e6:>10,.0f} {sizes[1] / 1e6:>10,.0f} {sizes[2] / 1e6:>12,.0f}")
    inodes = {rank["table_inode"] for rank in ranks}
    one = len(ranks) == options.ranks and len(inodes) == 1 and "none" not in inodes
    one &= totals["table_pss"] <= 1.02 * table and all(rank["large_mappings"] <= 1 for rank in ranks)
    print(
        f"the table is {table / 1e6:,.0f} MB; all ranks map {len(inodes)} shared object(s) of that size, "
        f"which hold(s) {totals['table_pss'] / table:.2f} tables: {'one table' if one else 'NOT one table'}"
    )
    if options.json:
        results = {"ranks": ranks, "table": table, **totals, "tables": totals["table_pss"] / table, "one": one}
        Path(options.json).write_text(json.dumps(results, indent=1))
    sys.exit(0 if one else os.EX_SOFTWARE)


if __name__ == "__main__":
    main()
