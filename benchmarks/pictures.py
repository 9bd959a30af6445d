"""What refreshing the pictures costs a training: processor time over the ranks' time, and how long training takes.

    python benchmarks/pictures.py [CONFIG] [KEY=VALUE ...] [--ranks 2] [--repeats 3] [--json FILE]

Each repeat trains twice, without pictures and with them, the same generations with the same bits.
"""

from mpies.runs.metrics import read_metrics
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import psutil

from mpies.comm import mpiexec

HOME = Path(__file__).resolve().parent.parent
PICTURE = "reward_vs_iteration.png"


def train(folder, options, pictures):
    """Train into a new run below `folder`.  Returns a dict of what was seen."""
    run = Path(tempfile.mkdtemp(dir=folder)) / "run"
    arguments = ["train", options.config, "--out", str(run), *options.overrides]
    command = mpiexec.command(mpiexec.find(), options.ranks, arguments)
    environment = mpiexec.environment() | {"MPIES_PICTURES": str(int(pictures))}
    began, until = time.perf_counter(), None
    seconds: dict = {}  # of processor time, of each process
    painters, drawn = set(), set()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        for one in psutil.Process(process.pid).children(recursive=True):
            try:
                if "mpies.painter" in one.cmdline():  # which is gone before the process is
                    painters.add(one.pid)
                spent = one.cpu_times()
                seconds[one.pid] = spent.user + spent.system
            except psutil.Error:
                continue
        if until is None:
            painted = sum(seconds[pid] for pid in painters)
            if (run / PICTURE).exists():
                drawn.add((run / PICTURE).stat().st_mtime_ns)
            if (run / "finished.yaml").exists():  # training is over, and only the last pictures are left
                until = time.perf_counter()
        time.sleep(0.2)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: ended with {process.returncode}")
    everything = sum(seconds[pid] for pid in painters)
    rows = read_metrics(run)
    return {
        "pictures": pictures,
        "seconds_to_the_end": (until or time.perf_counter()) - began,
        "training_seconds": float(rows[-1]["seconds"]),
        "evaluations": sum(bool(row["eval_mean"]) for row in rows),
        "drawn": len(drawn),
        "painter_cpu_seconds": painted,
        "last_pictures_cpu_seconds": everything - painted,
        "ranks_cpu_seconds": sum(seconds.values()) - everything,
        "digest": rows[-1]["digest"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", nargs="?", default=str(HOME / "configs" / "lunar_lander.yaml"))
    parser.add_argument("overrides", nargs="*", default=["stop.target=null", "stop.generations=120"])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json")
    options = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(options.repeats):
            found += [train(folder, options, pictures) for pictures in ((False, True), (True, False))[repeat % 2]]
    assert len({one["digest"] for one in found}) == 1
    without, with_them = ([one for one in found if one["pictures"] == which] for which in (False, True))
    share = statistics.median(
        one["painter_cpu_seconds"] / one["seconds_to_the_end"] / options.ranks for one in with_them
    )
    ratio = statistics.median(
        b["training_seconds"] / a["training_seconds"] for a, b in zip(without, with_them, strict=True)
    )
    print(f"{Path(options.config).stem} {' '.join(options.overrides)}, {options.ranks} ranks, {len(with_them)} pairs")
    for one in with_them:
        seen = f"{one['evaluations']} evaluations, pictures drawn {one['drawn']} times"
        rest = one["last_pictures_cpu_seconds"]
        spent = f"{one['painter_cpu_seconds']:.2f} s of {options.ranks} x {one['seconds_to_the_end']:.0f} s"
        print(f"{seen}, {spent}, {one['training_seconds']:.0f} s of training; the last ones at its end, {rest:.2f} s")
    print(f"median: {share:.2%} of the ranks' time; training takes {ratio:.3f} times as long")
    if options.json:
        load = os.getloadavg()[0]
        kept = {"config": Path(options.config).stem, "overrides": options.overrides, "ranks": options.ranks}
        kept |= {"share": share, "time_ratio": ratio, "load_at_end": load, "trainings": found}
        Path(options.json).write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
