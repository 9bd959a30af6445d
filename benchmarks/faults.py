"""Fault injection: kill, freeze and damage real runs, and compare what comes out with an undisturbed one.

    python benchmarks/faults.py job --trials 200       SIGKILL of the whole job at random moments, then resume
    python benchmarks/faults.py rank --trials 100      SIGKILL of one random rank of 4, rank 0 included (ULFM)
    python benchmarks/faults.py two --trials 20        SIGKILL of two random ranks of 4 at once (ULFM)
    python benchmarks/faults.py frozen --trials 5      SIGSTOP of one random rank of 4 (ULFM with its detector)
    python benchmarks/faults.py damage --trials 500    bit flips and truncations of every file of a run and of a sweep
    python benchmarks/faults.py errors --trials 200    reads and writes that the system refuses (LD_PRELOAD)
    python benchmarks/faults.py runs --trials 50       run directories of strangers, on the page and in every command
    python benchmarks/faults.py policies --trials 50   policy files of strangers
    python benchmarks/faults.py names --trials 50      odd names in batch scripts and manifests

Each prints a line per trial and a summary; --json FILE keeps it.  Victims and moments come from --seed.
"""

import argparse
import collections
import contextlib
import functools
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import file_faults

from mpies.comm import mpiexec
from mpies.runs.formats.metrics import read_digests, read_metrics

CONFIG = Path(__file__).with_name("faults.yaml")
RANKS = 4
Trials = Iterator[tuple[bool, str]]  # whether each was right, and a line about it
REPAIRED = r"training continues on \d+ ranks? after ([0-9.]+) s"  # what the log of a run says after a loss
ULFM = ["--with-ft", "ulfm"]
DETECTOR = [
    *("--mca", "mpi_ft_detector", "true", "--mca", "mpi_ft_detector_thread", "true"),
    *("--mca", "mpi_ft_detector_period", "0.2", "--mca", "mpi_ft_detector_timeout", "1"),
]


def start(out: Path, flags: Sequence[str] = (), ranks: int = RANKS) -> subprocess.Popen:
    """A job on `ranks` ranks, in a process group of its own."""
    program, *rest = mpiexec.command(mpiexec.find(), ranks, ["train", str(CONFIG), "--out", str(out)])
    return subprocess.Popen(
        [program, *flags, *rest],
        env=mpiexec.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def ranks_of(job: subprocess.Popen) -> list[int]:
    """Process ids of the job's ranks."""
    return [int(p) for p in Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()]


def wait_for_rows(job: subprocess.Popen, out: Path, count: int = 1, limit: float = 60) -> None:
    """Wait until metrics.csv has `count` rows, or the job is over."""
    end = time.monotonic() + limit
    while time.monotonic() < end and job.poll() is None and len(read_metrics(out)) < count:
        time.sleep(0.02)


def half_written(out: Path) -> list[Path]:
    """Checkpoints that do not have their final name yet."""
    return list((out / "checkpoints").glob(".generation-*.tmp"))


def wait_for_a_checkpoint(job: subprocess.Popen, out: Path, limit: float = 10) -> bool:
    """Wait until a checkpoint is being written.  Returns whether one is."""
    end = time.monotonic() + limit
    left = set(half_written(out))  # by jobs that were killed
    while time.monotonic() < end and job.poll() is None:
        if set(half_written(out)) - left:
            return True
    return False


def kill_all(job: subprocess.Popen) -> list[int]:
    """SIGKILL mpirun and its ranks at once.  Returns their process ids."""
    victims = [*ranks_of(job), job.pid] if job.poll() is None else []
    for victim in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    job.communicate()
    return victims


def undisturbed(folder: Path) -> tuple[list[str], float]:
    """The digests of a run that nothing is done to, and its seconds."""
    out = folder / "undisturbed"
    began = time.monotonic()
    output = start(out).communicate()[0]
    assert (out / "finished.yaml").exists(), output
    return read_digests(out), time.monotonic() - began


def job_trials(folder: Path, reference: list[str], trials: int, draw: random.Random) -> Trials:
    """Kill the whole job `trials` times, resuming it each time; a finished run makes room for a new one."""
    out, number, kills = folder / "job-0", 0, 0
    while kills < trials:
        ranks = draw.choice([1, 2, 3])
        before = len(read_metrics(out))
        job, writing = start(out, ranks=ranks), draw.random() < 0.5
        time.sleep(draw.uniform(0.5, 5.0))
        was_writing = writing and wait_for_a_checkpoint(job, out)
        if job.poll() is None:
            kill_all(job)
            kills += 1
        else:
            output = job.communicate()[0]
            if mpiexec.never_began(output):
                continue
            if not (out / "finished.yaml").exists():
                yield False, f"ended by itself: {output[-500:]}"
                return
        digests = read_digests(out)
        same = digests == reference[: len(digests)] and len(digests) >= before
        moment = ", a checkpoint half written" if was_writing and half_written(out) else ""
        yield same, f"{ranks} ranks, generation {before} -> {len(digests)}{moment}"
        if (out / "finished.yaml").exists():
            if digests != reference:
                yield False, "finished with other digests"
            shutil.rmtree(out)
            number += 1
            out = folder / f"job-{number}"
    output = start(out, ranks=2).communicate()[0]
    yield read_digests(out) == reference, "the last one, run to its end"


def rank_trials(
    folder: Path,
    reference: list[str],
    trials: int,
    draw: random.Random,
    victims: int = 1,
    number: signal.Signals = signal.SIGKILL,
    flags: Sequence[str] = ULFM,
) -> Trials:
    """Send a signal to random ranks of a run, `trials` times; the others must finish it."""
    done = 0
    while done < trials:
        out = folder / f"rank-{done}"
        shutil.rmtree(out, ignore_errors=True)
        job = start(out, flags)
        wait_for_rows(job, out)
        time.sleep(draw.uniform(0, 1.5))
        chosen = draw.sample(range(RANKS), victims)
        generation = len(read_metrics(out))
        if (out / "finished.yaml").exists() or job.poll() is not None:
            job.communicate()
            continue  # it was over before it could be hurt
        pids = ranks_of(job)
        if len(pids) < RANKS:  # the failure detector has ended a healthy rank: see detector.py
            kill_all(job)
            continue
        done += 1
        for victim in chosen:
            os.kill(pids[victim], number)
        try:
            output = job.communicate(timeout=60)[0]
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            yield False, f"ranks {chosen} at generation {generation}: hung"
            continue
        same = read_digests(out) == reference and (out / "finished.yaml").exists()
        seconds = [float(s) for s in re.findall(REPAIRED, output)]
        line = f"ranks {chosen} at generation {generation}: repaired in {seconds} s"
        yield same, line if same else f"{line}\n{output[-2000:]}"
        shutil.rmtree(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("campaign", choices=["job", "rank", "two", "frozen", *file_faults.CAMPAIGNS])
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    if options.campaign == "errors" and "LD_PRELOAD" not in os.environ:
        file_faults.restart_with_shim()
    with tempfile.TemporaryDirectory(prefix="mpies-faults-") as name:
        folder, reference = Path(name), list[str]()
        if options.campaign in file_faults.CAMPAIGNS:
            options.json = options.json and Path(options.json).absolute()
            os.chdir(folder)
            os.environ["MPIES_PICTURES"] = "0"
        else:
            reference, seconds = undisturbed(folder)
            print(f"undisturbed: {len(reference)} generations in {seconds:.1f} s, {reference[-1][:16]}", flush=True)
        campaign = {
            "job": lambda: job_trials(folder, reference, options.trials, draw),
            "rank": lambda: rank_trials(folder, reference, options.trials, draw),
            "two": lambda: rank_trials(folder, reference, options.trials, draw, victims=2),
            "frozen": lambda: rank_trials(
                folder, reference, options.trials, draw, number=signal.SIGSTOP, flags=[*ULFM, *DETECTOR]
            ),
            **{key: functools.partial(one, folder, options.trials, draw) for key, one in file_faults.CAMPAIGNS.items()},
        }[options.campaign]
        lines, right, repairs = [], 0, []
        for number, (good, line) in enumerate(campaign(), 1):
            right += good
            lines.append(line)
            repairs += [float(s) for s in re.findall(r"[0-9.]+", line.partition("repaired in [")[2].partition("]")[0])]
            print(f"{number:>4} {'ok  ' if good else 'FAIL'} {line}", flush=True)
    summary = {"campaign": options.campaign, "trials": len(lines), "right": right, "seed": options.seed}
    if repairs:
        summary |= {"repair_median_s": statistics.median(repairs), "repair_max_s": max(repairs)}
    print(json.dumps(summary))
    if options.json:
        details: dict[str, object] = {"lines": lines}
        if options.campaign in file_faults.CAMPAIGNS:
            details = {"trials by file and operation": collections.Counter(line.partition(":")[0] for line in lines)}
        Path(options.json).write_text(json.dumps(summary | details, indent=1, sort_keys=True) + "\n")
    sys.exit(0 if right == len(lines) else 1)


if __name__ == "__main__":
    main()
