"""What refreshing the pictures costs a training: processor time beside that of the ranks, and time on the clock.

    python benchmarks/pictures.py [CONFIG] [KEY=VALUE ...] [--ranks 2] [--repeats 3] [--json FILE]

Each repeat trains twice, without pictures and with them, the same generations with the same bits.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import psutil

from mpies import mpiexec, store

HOME = Path(__file__).resolve().parent.parent
PICTURE = "reward_vs_iteration.png"


def train(folder, options, pictures):
    """Train into a new run below `folder`.  Returns a dict of what was seen."""
    run = Path(tempfile.mkdtemp(dir=folder)) / "run"
    arguments = ["train", options.config, "--out", str(run), *options.overrides]
    command = mpiexec.command(mpiexec.find(), options.ranks, arguments)
    environment = mpiexec.environment() | {"MPIES_PICTURES": str(int(pictures))}
    began, seconds, drawn, last = time.perf_counter(), {}, set(), None
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        for one in psutil.Process(process.pid).children(recursive=True):
            try:
                spent, kind = one.cpu_times(), "painter" if "mpies.painter" in one.cmdline() else "rank"
                seconds[one.pid] = kind, spent.user + spent.system
            except psutil.Error:
                continue
        if last is None and (run / "finished.yaml").exists():
            last = _spent(seconds, "painter")  # the rest goes into the last pictures, when training is over
        if last is None and (run / PICTURE).exists():
            drawn.add((run / PICTURE).stat().st_mtime_ns)
        time.sleep(0.2)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: ended with {process.returncode}")
    rows = store.read_metrics(run)
    return {
        "pictures": pictures,
        "wall_seconds": time.perf_counter() - began,
        "training_seconds": float(rows[-1]["seconds"]),
        "evaluations": sum(bool(row["eval_mean"]) for row in rows),
        "drawn": len(drawn),
        "painter_cpu_seconds": last or 0.0,
        "last_pictures_cpu_seconds": _spent(seconds, "painter") - (last or 0.0),
        "ranks_cpu_seconds": _spent(seconds, "rank"),
        "digest": rows[-1]["digest"],
    }


def _spent(seconds, wanted):
    return sum(spent for kind, spent in seconds.values() if kind == wanted)


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
    share = statistics.median(one["painter_cpu_seconds"] / one["ranks_cpu_seconds"] for one in with_them)
    ratio = statistics.median(
        b["training_seconds"] / a["training_seconds"] for a, b in zip(without, with_them, strict=True)
    )
    print(f"{Path(options.config).stem} {' '.join(options.overrides)}, {options.ranks} ranks, {len(with_them)} pairs")
    for one in with_them:
        seen = f"{one['evaluations']} evaluations, pictures drawn {one['drawn']} times"
        rest = one["last_pictures_cpu_seconds"]
        spent = f"{one['painter_cpu_seconds']:.2f} s beside the ranks' {one['ranks_cpu_seconds']:.0f} s of processors"
        print(f"{seen}, {spent}, {one['training_seconds']:.0f} s of training; the last ones at its end, {rest:.2f} s")
    print(f"median: {share:.2%} of the ranks' processor time; training takes {ratio:.3f} times as long")
    if options.json:
        load = os.getloadavg()[0]
        kept = {"config": Path(options.config).stem, "overrides": options.overrides, "ranks": options.ranks}
        kept |= {"processor_share": share, "time_ratio": ratio, "load_at_end": load, "trainings": found}
        Path(options.json).write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
