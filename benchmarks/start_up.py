"""Seconds from `mpirun` to the first member, and which imports they go into.

    python benchmarks/start_up.py [--ranks 2,8,16] [--repeats 7] [--json FILE] [CONFIG] [KEY=VALUE ...]

0. The seconds from the command to the prompt, of two generations of CartPole without and with `--ranks 2`.
1. Real `mpies train` runs of one generation: the time from the start of the command until metrics.csv has its row, less
   the seconds of the generation in that row.
2. The phases of a start, which ranks go through together and measure.  A phase ends when the last rank has ended it.
   The medians of the repeats are printed, and with
   them the processor time of a rank until its first generation begins.
3. The imports of one rank by package (`python -X importtime`): a package's own modules, without those of other packages
   that they import.
"""

import argparse
import collections
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from mpies.comm import mpiexec
from mpies.runs.formats.metrics import read_metrics

IMPORT = re.compile(r"import time: +(\d+) \| +(\d+) \| +(\S+)")
PHASES = ("mpirun", "imports", "MPI", "config, environment", "noise table", "run directory", "end")
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
        wait_for_picture(out)
        return seconds - float(rows[0]["seconds"])


def seconds_to_prompt(flags: list[str]) -> float:
    """Seconds that `mpies train` keeps the prompt waiting for two generations of CartPole."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-P", "-m", "mpies", "train", "cartpole", *flags, "stop.generations=2"]
        began = time.perf_counter()
        subprocess.run([*command, "--out", str(out)], check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - began
        wait_for_picture(out)
    return seconds


def wait_for_picture(out: Path) -> None:
    """Wait until the process that draws the last picture of a run has ended."""
    until = time.monotonic() + 60
    while not (out / "reward_vs_steps.png").exists() and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(0.5)


def take_times(config: str, overrides: list[str], out: str) -> None:
    """One rank that starts as `mpies train` does.  Rank 0 prints when each phase but the last was over on all ranks."""
    from mpies.comm import connect
    from mpies.config.loading import load_config
    from mpies.launch.ranks import rank as imported
    from mpies.runs.directory import open_run
    from mpies.training.progress import process_age
    from mpies.training.task import build_task
    from mpies.training.trainer import Trainer
    from mpies.training.update import Updater, make_solver

    assert imported
    times = [time.time() - process_age(), time.time()]
    comm = connect()
    times.append(time.time())
    settings = load_config(config, [*overrides, *GENERATION])
    task = build_task(settings, comm)
    times.append(time.time())
    updater = Updater(settings, make_solver(settings, task.dimension, task.directions), comm)
    times.append(time.time())
    trainer = Trainer(settings, comm, task, updater, open_run(out, settings) if comm.is_root else None)
    trainer.restore()
    times.append(time.time())
    every, _ = comm.allgather(np.array([*times, time.process_time()]))
    if comm.is_root:
        assert trainer.run
        trainer.run.close()
        *last, _ = every.reshape(comm.size, -1).max(axis=0).tolist()
        print(json.dumps([last, every.reshape(comm.size, -1)[:, -1].mean()]), flush=True)
    comm.finalize(0)


def seconds_of_phases(ranks: int, config: str | Path, overrides: list[str]) -> tuple[list[float], float]:
    """Seconds of each of PHASES, and processor seconds of a rank until its first generation begins."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.time()
        rank = [sys.executable, __file__, "--rank", str(Path(folder) / "run"), str(config), *overrides]
        done = mpiexec.run([mpiexec.find(), "-n", str(ranks), *rank])
        if done.returncode:
            sys.exit(f"{' '.join(rank)} ended with code {done.returncode}: {done.stderr[-2000:]}")
        last, processor = json.loads(done.stdout)
        times = [began, *last, time.time()]
    return np.diff(times).tolist(), processor


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
    parser.add_argument("--ranks", default="2,8,16")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json")
    parser.add_argument("--rank", metavar="OUT", help="be one of the ranks whose phases are timed")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # mpies is compiled once, as where it is installed
    if options.rank:
        take_times(str(options.config), options.overrides, options.rank)
        return
    prompts, results, phases, processors = {}, {}, {}, {}
    for flags in ([], ["--ranks", "2"]):
        name = " ".join(["mpies train cartpole", *flags])
        prompts[name] = [seconds_to_prompt(flags) for _ in range(options.repeats)]
        print(f"{statistics.median(prompts[name]):6.2f} s to the prompt: {name}", flush=True)
    for ranks in map(int, options.ranks.split(",")):
        seconds = [seconds_to_first_member(ranks, options.config, options.overrides) for _ in range(options.repeats)]
        results[ranks] = seconds
        print(f"{ranks:>3} ranks: {statistics.median(seconds):6.2f} s to the first member ", end="")
        print(f"(min {min(seconds):.2f}, max {max(seconds):.2f}, {options.repeats} repeats)", flush=True)
        every = [seconds_of_phases(ranks, options.config, options.overrides) for _ in range(options.repeats)]
        phases[ranks] = dict(zip(PHASES, np.median([one for one, _ in every], axis=0).tolist(), strict=True))
        processors[ranks] = statistics.median(processor for _, processor in every)
        print("          " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in phases[ranks].items()), flush=True)
        print(f"          {processors[ranks]:.2f} s of a processor for each rank until the generation", flush=True)
    spent = imports(options.config, options.overrides)
    print(f"imports of a rank: {sum(spent.values()):.0f} ms, of which")
    for name, milliseconds in list(spent.items())[:12]:
        print(f"  {name:<24} {milliseconds:7.0f} ms")
    if options.json:
        Path(options.json).write_text(
            json.dumps(
                {
                    "seconds_to_prompt": prompts,
                    "seconds": results,
                    "phases": phases,
                    "processor_seconds": processors,
                    "import_milliseconds": spent,
                },
                indent=1,
            )
        )


if __name__ == "__main__":
    main()
