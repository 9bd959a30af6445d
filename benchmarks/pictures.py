"""What live plots cost a training: processor time as a share of the ranks' time, and how much longer it takes.

    python benchmarks/pictures.py [CONFIG] [KEY=VALUE ...] [--ranks 2] [--repeats 3] [--json FILE]

Each repeat trains twice, without plots and with them: the same generations with the same bits.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from mpies.comm import mpiexec
from mpies.report import live_plots
from mpies.runs.metrics import read_metrics

HOME = Path(__file__).resolve().parent.parent
PLOT = "reward_vs_iteration.png"


def train(folder, options, with_plots):
    """Train into a new run below `folder`.  Returns a dict of the measurements."""
    run = Path(tempfile.mkdtemp(dir=folder)) / "run"
    arguments = ["train", options.config, "--out", str(run), *options.overrides]
    command = mpiexec.command(mpiexec.find(), options.ranks, arguments)
    environment = mpiexec.environment() | {"MPIES_PICTURES": str(int(with_plots))}
    began, ended = time.perf_counter(), None
    cpu_seconds: dict = {}  # of each process, by its id
    drawing_processes, drawn_at = set(), set()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        for child in psutil.Process(process.pid).children(recursive=True):
            try:
                if live_plots.__name__ in child.cmdline():
                    drawing_processes.add(child.pid)
                times = child.cpu_times()
                cpu_seconds[child.pid] = times.user + times.system
            except psutil.Error:  # it has ended
                continue
        if ended is None:
            in_training = sum(cpu_seconds[pid] for pid in drawing_processes)
            if (run / PLOT).exists():
                drawn_at.add((run / PLOT).stat().st_mtime_ns)
            if (run / "finished.yaml").exists():  # only the last plots are still to be drawn
                ended = time.perf_counter()
        time.sleep(0.2)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: ended with {process.returncode}")
    drawing = sum(cpu_seconds[pid] for pid in drawing_processes)
    rows = read_metrics(run)
    return {
        "pictures": with_plots,
        "seconds_to_the_end": (ended or time.perf_counter()) - began,
        "training_seconds": float(rows[-1]["seconds"]),
        "evaluations": sum(bool(row["eval_mean"]) for row in rows),
        "drawn": len(drawn_at),
        "drawing_cpu_seconds": in_training,
        "last_plots_cpu_seconds": drawing - in_training,
        "ranks_cpu_seconds": sum(cpu_seconds.values()) - drawing,
        "digest": rows[-1]["digest"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", nargs="?", default=str(HOME / "configs" / "lunar_lander.yaml"))
    parser.add_argument("overrides", nargs="*", default=["stop.target=null", "stop.generations=1000"])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json")
    options = parser.parse_args()
    trainings = []
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(options.repeats):
            order = (False, True) if repeat % 2 == 0 else (True, False)
            trainings += [train(folder, options, with_plots) for with_plots in order]
    assert len({one["digest"] for one in trainings}) == 1
    if not all(one["drawn"] for one in trainings if one["pictures"]):
        sys.exit("a run was over before its first pictures; give it more generations")
    without, with_plots = ([one for one in trainings if one["pictures"] == which] for which in (False, True))
    share = statistics.median(
        one["drawing_cpu_seconds"] / one["seconds_to_the_end"] / options.ranks for one in with_plots
    )
    busy_share = statistics.median(one["drawing_cpu_seconds"] / one["ranks_cpu_seconds"] for one in with_plots)
    ratio = statistics.median(
        b["training_seconds"] / a["training_seconds"] for a, b in zip(without, with_plots, strict=True)
    )
    print(f"{Path(options.config).stem} {' '.join(options.overrides)}, {options.ranks} ranks, {len(with_plots)} pairs")
    for one in with_plots:
        counts = f"{one['evaluations']} evaluations, plots drawn {one['drawn']} times"
        cost = f"{one['drawing_cpu_seconds']:.2f} s of {options.ranks} x {one['seconds_to_the_end']:.0f} s"
        last = f"the last plots took {one['last_plots_cpu_seconds']:.2f} s"
        print(f"{counts}, {cost}, {one['training_seconds']:.0f} s of training; {last}")
    shares = f"{share:.2%} of the ranks' time, {busy_share:.2%} of their processor time"
    print(f"median: {shares}; training takes {ratio:.3f} times as long")
    if options.json:
        load = os.getloadavg()[0]
        results = {"config": Path(options.config).stem, "overrides": options.overrides, "ranks": options.ranks}
        results |= {"share": share, "share_of_processor_time": busy_share, "time_ratio": ratio}
        results |= {"load_at_end": load, "trainings": trainings}
        Path(options.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
