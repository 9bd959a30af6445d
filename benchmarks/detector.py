"""How often MPI's failure detector declares a healthy rank dead on a machine with more work than cores.

    python benchmarks/detector.py [--trials 6] [--spinners 4] [--json FILE]

For each period and time-out of Open MPI's detector: runs of benchmarks/faults.yaml on 4 ranks with ULFM and the
detector's own thread, while `--spinners` other processes keep the cores busy.  No rank is killed, so every rank that
is reported lost is a false alarm.  Prints a row for each setting.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from mpies.comm import mpiexec

CONFIG = Path(__file__).with_name("faults.yaml")
SETTINGS = [(0.2, 1.0), (1.0, 10.0), (2.0, 30.0)]  # seconds: period, time-out
RANKS = 4
LIMIT = 60  # seconds of a run, which takes 8 on two cores that are free


def flags(period: float, timeout: float) -> list[str]:
    """What mpiexec is told to detect frozen ranks."""
    values = {"mpi_ft_detector": "true", "mpi_ft_detector_thread": "true"}
    values |= {"mpi_ft_detector_period": f"{period:g}", "mpi_ft_detector_timeout": f"{timeout:g}"}
    return ["--with-ft", "ulfm", *(word for name, value in values.items() for word in ("--mca", name, value))]


def lost_ranks(period: float, timeout: float) -> int:
    """How many ranks a run reports as lost; -1 where it does not reach its end in LIMIT seconds.

    With the detector, mpiexec does not end by itself: it is ended here when the run is complete.
    """
    with tempfile.TemporaryDirectory(prefix="mpies-detector-") as folder:
        out = Path(folder) / "run"
        program, *rest = mpiexec.command(mpiexec.find() or "mpiexec", RANKS, ["train", str(CONFIG), "--out", str(out)])
        process = subprocess.Popen(
            [program, *flags(period, timeout), *rest],
            env=mpiexec.environment() | {"MPIES_PICTURES": "0"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + LIMIT
        while time.monotonic() < end and process.poll() is None and not (out / "finished.yaml").exists():
            time.sleep(0.2)
        is_complete = (out / "finished.yaml").exists()
        ranks = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        for each in (process, *ranks):  # ranks outlive mpiexec for a moment, and would still write into the folder
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait()
        psutil.wait_procs(ranks, timeout=LIMIT)
        return (out / "log.txt").read_text().count(": lost process") if is_complete else -1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=6, help="runs of each setting")
    parser.add_argument("--spinners", type=int, default=4, help="processes that keep the cores busy")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.spinners)]
    rows = []
    try:
        for period, timeout in SETTINGS:
            lost = [lost_ranks(period, timeout) for _ in range(options.trials)]
            rows.append({"period": period, "timeout": timeout, "trials": len(lost), "lost": lost})
            alarms, failed = sum(count > 0 for count in lost), sum(count < 0 for count in lost)
            print(
                f"period {period:g} s, time-out {timeout:g} s: {alarms} of {len(lost)} runs with a false alarm, "
                f"{failed} not finished",
                flush=True,
            )
    finally:
        for process in spinners:
            process.kill()
    if options.json:
        options.json.write_text(json.dumps({"ranks": RANKS, "spinners": options.spinners, "settings": rows}, indent=1))


if __name__ == "__main__":
    main()
