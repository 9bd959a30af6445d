"""Sweeps: what they cost beside lone runs, merging of groups, halving, kills, and a thousand trials.

    python benchmarks/sweeps.py alone       24 trials of the lunar lander on 2 ranks beside the same runs made alone
    python benchmarks/sweeps.py merging     64 ranks, 52 sleeping trials of unequal length: busy share, with and without
    python benchmarks/sweeps.py halving     27 settings of the lunar lander: halving beside the full sweep, 5 times
    python benchmarks/sweeps.py kills       SIGKILL of the whole job at random moments, until the sweep is complete
    python benchmarks/sweeps.py many        1,000 trials of rastrigin: what a trial costs besides its training
    python benchmarks/sweeps.py tables      memory and start-up of groups that share a noise table

--quick makes them small.  --json FILE keeps the figures.  --folder FOLDER keeps the sweeps, and the same command
continues them.  `busy` is the time that episodes slept, which follows from their steps, over ranks x wall time from the
beginning of the first trial to the end of the last one.
"""

import argparse
import csv
import json
import math
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
from typing import Any

import numpy as np

from mpies.comm import mpiexec
from mpies.runs.metrics import read_digests, read_metrics

HERE = Path(__file__).parent
SLEEPING = """
environment: {id: "sleeping:Sleeping-v0", backend: gymnasium, kwargs: {step: STEP, mean: 5}}
policy: {hidden: [4]}
solver: {population: POPULATION}
overlap: 0.5
noise: {size: 100000}
evaluation: {every: 0, episodes: 16}
stop: {generations: 1}
"""
STEP = 0.02  # seconds
CARTPOLE = """
environment: {id: CartPole-v1, max_steps: 100}
policy: {hidden: [8]}
solver: {population: 32}
noise: {size: 100000}
evaluation: {every: 5, episodes: 5}
stop: {generations: 60}
"""
RASTRIGIN = """
environment: {id: "function:rastrigin", dimension: 10}
solver: {population: 20}
noise: {size: 100000}
evaluation: {every: 0}
stop: {generations: 5}
"""

Figures = dict[str, Any]


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    return mpiexec.environment() | {"PYTHONPATH": path, "MPIES_PICTURES": "0"}


def run(*arguments: object, ranks: int = 0, check: bool = True) -> float:
    """Run `mpies` with these arguments, under mpirun where ranks are given.  Returns the seconds that it took."""
    words = [str(argument) for argument in arguments]
    program = mpiexec.find()
    assert program
    command = mpiexec.command(program, ranks, words) if ranks else [sys.executable, "-m", "mpies", *words]
    began = time.perf_counter()
    done = subprocess.run(command, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if check and done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return time.perf_counter() - began


def read_table(sweep: Path) -> list[dict[str, str]]:
    """The rows of trials.csv."""
    with open(sweep / "trials.csv") as file:
        return list(csv.DictReader(file))


def core_seconds(sweep: Path) -> float:
    return sum(float(row["core_seconds"]) for row in read_table(sweep))


def steps(sweep: Path) -> int:
    return sum(int(row["steps"]) for row in read_table(sweep))


def comparable(sweep: Path) -> list[dict[str, str]]:
    """The rows of trials.csv without times."""
    return [{key: row[key] for key in row if key != "core_seconds"} for row in read_table(sweep)]


def measure_alone(folder: Path, quick: bool) -> Figures:
    generations, sigmas, seeds = (
        (3, [0.02, 0.1], 2) if quick else (20, [0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.2, 0.3], 3)
    )
    fixed = [f"stop.generations={generations}", "stop.target=null"]
    values = ",".join(map(str, sigmas))
    sweep = folder / "sweep"
    seconds = run("sweep", "lunar_lander", f"solver.sigma={values}", "--seeds", seeds, *fixed, "--out", sweep, ranks=2)
    commands, alone, equal = 0.0, 0.0, True
    for sigma in sigmas:
        for seed in range(1, seeds + 1):
            lone = folder / f"{sigma}-{seed}"
            commands += run("train", "lunar_lander", f"solver.sigma={sigma}", f"seed={seed}", *fixed, "--out", lone)
            alone += seconds_of_training(lone)
            equal &= read_digests(lone) == read_digests(sweep / f"sigma={sigma}_seed={seed}")
    return {
        "trials": len(sigmas) * seeds,
        "wall_seconds": seconds,
        "core_seconds_of_the_sweep": core_seconds(sweep),
        "core_seconds_alone": alone,
        "core_seconds_of_the_commands_alone": commands,
        "ratio": 2 * seconds / alone,
        "ratio_to_the_commands": 2 * seconds / commands,
        "digests_equal": equal,
    }


def seconds_of_training(run: Path) -> float:
    """Seconds of generations and evaluations, without start-up, as the log has them."""
    took = re.findall(r"this job took .*", (run / "log.txt").read_text())[-1]
    return sum(float(seconds) for seconds, _ in re.findall(r"([\d.]+) s (generations|evaluations)", took))


def measure_merging(folder: Path, quick: bool) -> Figures:
    ranks, trials, population, longest = (8, 6, 16, 30) if quick else (64, 40, 128, 80)
    (folder / "base.yaml").write_text(SLEEPING.replace("STEP", str(STEP)).replace("POPULATION", str(population)))
    lengths = np.random.default_rng(1).lognormal(math.log(longest / 4), 0.6, trials).clip(3, longest)
    values = ",".join(str(number) for number in sorted({*map(int, lengths)}))
    seeds = math.ceil(trials / len(values.split(",")))
    found: Figures = {"ranks": ranks, "ranks_per_run": 4, "generations": values, "seeds": seeds}
    for way in ("merging", "without"):
        sweep = folder / way
        arguments = [folder / "base.yaml", f"stop.generations={values}", "--seeds", seeds, "--ranks-per-run", 4]
        rank = [sys.executable, "-m", "mpi4py", __file__, "rank", way, "sweep", *arguments, "--out", sweep]
        program = mpiexec.find()
        assert program
        done = subprocess.run(
            [program, "-n", str(ranks), *map(str, rank)], env=environment(), capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(done.stdout[-2000:] + done.stderr[-4000:])
        found[way] = busy_share(sweep, ranks)
        digests = {run.parent.name: read_digests(run.parent) for run in sweep.glob("*/metrics.csv")}
        found["digests_equal"] = found.setdefault("_digests", digests) == digests
    del found["_digests"]
    return found


def busy_share(sweep: Path, ranks: int) -> Figures:
    """The busy share of a sweep of sleeping trials, until the last one's end and until the first idle group."""
    runs = [file.parent for file in sweep.glob("*/metrics.csv")]
    steps = 0.0
    for one in runs:
        for row in read_metrics(one):
            evaluated = float(row["eval_length"]) * float(row["eval_episodes"]) if row["eval_episodes"] else 0.0
            steps += evaluated
        steps += float(read_metrics(one)[-1]["steps"])
    began = min((one / "config.yaml").stat().st_mtime for one in runs)
    ended = max((one / "finished.yaml").stat().st_mtime for one in runs)
    stops = sum(int(read_metrics(one)[-1]["starts"]) - 1 for one in runs)
    return {
        "busy": steps * STEP / (ranks * (ended - began)),
        "wall_seconds": ended - began,
        "trials_stopped_for_more_ranks": stops,
    }


def measure_halving(folder: Path, quick: bool) -> Figures:
    count, first, repetitions = (9, 20_000, 1) if quick else (27, 30_000, 5)
    base = ["stop.target=null", f"stop.steps={first * (9 if quick else 27)}", "solver.population=64"]
    base += ["evaluation={every: 1000, episodes: 40}"]  # at the end of a budget
    drawn = ["solver.sigma={log_uniform: [0.005, 0.5]}", "solver.optimizer.learning_rate={log_uniform: [0.001, 0.3]}"]
    rows = []
    for seed in range(1, repetitions + 1):
        full, halved = folder / f"full-{seed}", folder / f"halved-{seed}"
        common = ["lunar_lander", *drawn, *base, "--trials", count, "--draw-seed", seed]
        run("sweep", *common, "--out", full, ranks=2)
        run("sweep", *common, "--halving", f"first={first},eta=3", "--out", halved, ranks=2)
        best = next(row["name"] for row in read_table(full) if row["rank"] == "1")
        place = next(row for row in read_table(halved) if row["name"] == best)
        winner = next(row["name"] for row in read_table(halved) if row["rank"] == "1")
        in_full = next(row for row in read_table(full) if row["name"] == winner)
        rows.append(
            {
                "core_seconds": core_seconds(halved),
                "core_seconds_full": core_seconds(full),
                "steps": steps(halved),
                "steps_full": steps(full),
                "rank_of_the_best_of_the_full_sweep": int(place["rank"] or 0),
                "its_state": place["state"],
                "rank_of_the_winner_in_the_full_sweep": int(in_full["rank"] or 0),
            }
        )
        print(rows[-1], flush=True)
    shares = {
        f"share_of_{what}": statistics.median(row[what] / row[f"{what}_full"] for row in rows)
        for what in ("core_seconds", "steps")
    }
    return {"settings": count, "first": first, "eta": 3, **shares, "repetitions": rows}


def measure_kills(folder: Path, quick: bool) -> Figures:
    wanted, chance = (4 if quick else 50), random.Random(1)
    (folder / "base.yaml").write_text(CARTPOLE)
    arguments = ["sweep", folder / "base.yaml", "solver.sigma=0.05,0.1,0.2", "--seeds", 4]
    run(*arguments, "--out", folder / "undisturbed", ranks=2)
    kills, sweeps, wrong = 0, 0, 0
    program = mpiexec.find()
    assert program
    while kills < wanted:
        out = folder / f"killed-{sweeps}"
        while kills < wanted:
            command = mpiexec.command(program, 3, [str(word) for word in (*arguments, "--out", out)])
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            job = subprocess.Popen(command, env=environment(), start_new_session=True, **quiet)  # type: ignore[call-overload]
            began = count_rows(out)
            while job.poll() is None and count_rows(out) == began:
                time.sleep(0.02)
            time.sleep(chance.expovariate(1 / 0.4))
            if job.poll() is not None:
                break
            kill_all(job)
            kills += 1
        sweeps += 1
        run(*arguments, "--out", out, ranks=2)
        same = comparable(out) == comparable(folder / "undisturbed")
        for row in read_table(folder / "undisturbed"):
            same &= read_digests(out / row["name"]) == read_digests(folder / "undisturbed" / row["name"])
        wrong += not same
        shutil.rmtree(out)
    return {"kills": kills, "sweeps": sweeps, "trials": 12, "ranks": 3, "sweeps_that_differ": wrong}


def count_rows(sweep: Path) -> int:
    return sum(file.stat().st_size for file in sweep.glob("*/metrics.csv"))


def kill_all(job: "subprocess.Popen[bytes]") -> None:
    """SIGKILL of mpirun and all its ranks."""
    children = [int(word) for word in Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()]
    for process in [job.pid, *children]:
        os.kill(process, signal.SIGKILL)
    job.wait()
    mpiexec.remove_leftovers()


def measure_many(folder: Path, quick: bool) -> Figures:
    trials = 50 if quick else 1000
    (folder / "base.yaml").write_text(RASTRIGIN)
    drawn = "solver.sigma={log_uniform: [0.001, 1]}"
    sweep = folder / "sweep"
    arguments = ["sweep", folder / "base.yaml", drawn, "--trials", trials, "--out", sweep]
    seconds = run(*arguments, ranks=2)
    trained = core_seconds(sweep)
    began = time.perf_counter()
    names = os.listdir(sweep)
    listing = time.perf_counter() - began
    files = sum(len(files) for _, _, files in os.walk(sweep))
    return {
        "trials": trials,
        "wall_seconds": seconds,
        "training_core_seconds": trained,
        "overhead_seconds_per_trial": (2 * seconds - trained) / trials,
        "files": files,
        "listing_seconds": listing,
        "entries": len(names),
        "same_command_again_seconds": run(*arguments, ranks=2),
    }


def measure_tables(folder: Path, quick: bool) -> Figures:
    from mpies.solvers.sampling import noise
    from mpies.training.noise_tables import NoiseTables

    size = 2_500_000 if quick else 25_000_000
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        tables = NoiseTables(os.dup(file.fileno()))
        seconds = []
        for seed in (1, 2, 2):
            began = time.perf_counter()
            tables.get(seed, size)
            seconds.append(time.perf_counter() - began)
        first, other, again = seconds
        held = os.fstat(file.fileno()).st_blocks * 512
        tables.close()
    began = time.perf_counter()
    noise.build_table(size)
    return {
        "normals": size,
        "bytes": held,
        "seconds_new": first,
        "seconds_in_the_place_of_another": other,
        "seconds_shared": again,
        "seconds_of_a_lone_run": time.perf_counter() - began,
    }


WAYS = {
    "alone": measure_alone,
    "merging": measure_merging,
    "halving": measure_halving,
    "kills": measure_kills,
    "many": measure_many,
    "tables": measure_tables,
}


def train_as_rank(way: str, arguments: Sequence[str]) -> None:
    """One rank of a sweep, whose groups never merge where way is "without"."""
    from mpies.cli.main import main
    from mpies.sweeps import trial_ranks

    if way == "without":
        trial_ranks.division_pays = lambda *_: False  # type: ignore[assignment]
    sys.argv[1:] = arguments
    main()


def described(figures: Figures) -> Iterator[str]:
    for name, value in figures.items():
        yield f"{name:36} {value:.4g}" if isinstance(value, float) else f"{name:36} {value}"


def main() -> None:
    if sys.argv[1:2] == ["rank"]:
        train_as_rank(sys.argv[2], sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=re.split("\n", __doc__ or "")[0])
    parser.add_argument("what", choices=WAYS)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mpies-sweeps-") as folder:
        kept = (options.folder or Path(folder)).absolute()
        kept.mkdir(parents=True, exist_ok=True)
        figures = WAYS[options.what](kept, options.quick)
    print("\n".join(described(figures)))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
