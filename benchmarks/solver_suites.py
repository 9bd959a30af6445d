"""Our solvers on the COCO suites `bbob` and `bbob-largescale`, beside pycma and the crfmnes package.

    python benchmarks/solver_suites.py                 all of it, hours on one core; --resume goes on
    python benchmarks/solver_suites.py --short         a minute's worth
    python benchmarks/solver_suites.py --bytes         only what each table solver sends per generation

Counts evaluations until COCO's final target (optimum + 1e-8) is hit; every solver starts at 0 with
sigma 2, in float64, and runs to the budget without restarts.  Writes results/solver_suites.json and .md.
Needs: pip install coco-experiment crfmnes cma
"""

import argparse
import json
import math
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

from mpies.solvers import find_solver
from mpies.solvers.loop import SolverLoop
from mpies.solvers.sampling.noise import build_table

RESULTS = Path(__file__).parent / "results"
SIGMA = 2.0
SUITES = {
    "bbob": {
        "instances": {5: 5, 10: 5, 20: 5},  # by dimension
        "functions": (1, 2, 5, 8, 10, 11, 12, 14),
        "budget": 10_000,  # evaluations per dimension
    },
    "bbob-largescale": {
        "instances": {80: 3, 160: 1},
        "functions": (1, 2, 8, 10, 12),
        "budget": 2_500,
    },
}
OURS = {
    "cma_es": {},
    "cr_fm_nes": {},
    "snes": {},
    "sep_cma": {},
}
NAMES = {
    1: "sphere",
    2: "ellipsoid, separable",
    5: "linear slope",
    8: "Rosenbrock",
    10: "ellipsoid, rotated",
    11: "discus",
    12: "bent cigar",
    14: "different powers",
}


class Counted:
    """A COCO problem that notes at which evaluation its final target was hit; `over` ends the run."""

    def __init__(self, problem, budget):
        self.problem, self.budget, self.evaluations, self.hit = problem, budget, 0, None

    def __call__(self, x):
        value = self.problem(np.ravel(x))
        self.evaluations += 1
        if self.hit is None and self.problem.final_target_hit:
            self.hit = self.evaluations
        return value if math.isfinite(value) else 1e300

    @property
    def over(self):
        return self.hit is not None or self.evaluations >= self.budget


def run_ours(kind, cost, dimension, seed, table):
    cls = find_solver(kind)
    solver = cls(cls.Options(sigma=SIGMA, **OURS[kind]), dimension, seed, np.float64)
    solver.start(np.zeros(dimension))
    loop = SolverLoop(solver, lambda x: -cost(x), table)
    while not cost.over:
        loop.run_generation()


def run_pycma(cost, dimension, seed):
    import cma

    strategy = cma.CMAEvolutionStrategy(np.zeros(dimension), SIGMA, {"seed": seed + 1, "verbose": -9})
    while not cost.over:
        candidates = strategy.ask()
        strategy.tell(candidates, [cost(x) for x in candidates])


def run_crfmnes(cost, dimension, seed):
    from crfmnes import CRFMNES

    members = find_solver("cr_fm_nes").Options().members(dimension)
    start = np.zeros((dimension, 1))
    package = CRFMNES(dimension, cost, start, SIGMA, members, seed=seed + 1, use_constraint_violation=False)
    while not cost.over:
        package.one_iteration()


def run_suites(solvers, suites, rows, save):
    """Add to rows of {suite, function, dimension, solver, instance, evaluations or None} what is not there yet.

    save: called with the processor seconds of each part.
    """
    import cocoex

    table = build_table(1 << 21, dtype=np.float64)
    done = {(row["suite"], row["dimension"], row["solver"]) for row in rows}
    for suite, plan in suites.items():
        for dimension, instances in plan["instances"].items():
            chosen = "dimensions:{} function_indices:{} instance_indices:1-{}".format(
                dimension, ",".join(map(str, plan["functions"])), instances
            )
            for solver in solvers:
                if (suite, dimension, solver) in done:
                    continue
                began = time.process_time()
                for problem in cocoex.Suite(suite, "", chosen):
                    cost = Counted(problem, plan["budget"] * dimension)
                    with np.errstate(all="ignore"):
                        if solver == "pycma":
                            run_pycma(cost, dimension, problem.id_instance)
                        elif solver == "crfmnes":
                            run_crfmnes(cost, dimension, problem.id_instance)
                        else:
                            run_ours(solver, cost, dimension, problem.id_instance, table)
                    rows.append(
                        {
                            "suite": suite,
                            "function": problem.id_function,
                            "dimension": dimension,
                            "solver": solver,
                            "instance": problem.id_instance,
                            "evaluations": cost.hit,
                        }
                    )
                seconds = time.process_time() - began
                save(seconds)
                print(f"{suite} d={dimension} {solver}: {seconds:.0f} s", file=sys.stderr, flush=True)


def tabulate(rows):
    """{(suite, d, f): {solver: (hits, runs, mean evaluations of the hits or None)}}."""
    table = {}
    for row in rows:
        key = (row["suite"], row["dimension"], row["function"])
        table.setdefault(key, {}).setdefault(row["solver"], []).append(row["evaluations"])
    return {
        key: {
            solver: (len(hits := [e for e in found if e]), len(found), float(np.mean(hits)) if hits else None)
            for solver, found in cells.items()
        }
        for key, cells in table.items()
    }


def ratios(table, ours, theirs):
    """Mean evaluations of ours over theirs, for each problem where both hit every instance."""
    return {
        key: cells[ours][2] / cells[theirs][2]
        for key, cells in table.items()
        if ours in cells and theirs in cells and all(cells[s][0] == cells[s][1] for s in (ours, theirs))
    }


def measure_bytes(dimension=2804, members=256, generations=3):
    """What each table solver hands to the communicator per generation: {kind: {verb: bytes}}."""
    from mpies.comm.serial import Serial
    from mpies.config.loading import validate_config
    from mpies.training.trainer import Trainer

    class Counting(Serial):
        def __init__(self):
            super().__init__()
            self.sent = {"broadcast": 0, "gathered": 0, "moments": 0}

        def broadcast(self, arrays):
            self.sent["broadcast"] += sum(a.nbytes for a in arrays)
            return super().broadcast(arrays)

        def broadcast_rows(self, rows, window):
            self.sent["broadcast"] += 0 if rows is None else rows.nbytes
            super().broadcast_rows(rows, window)

        def allgather(self, rows, numbers=()):
            self.sent["gathered"] += rows.nbytes
            return super().allgather(rows, numbers)

        def gather_blocks(self, block, bounds):
            self.sent["moments"] += block.nbytes
            return block

    found = {}
    for kind in ("openai_es", "pepg", "pgpe", "ars", "snes", "sep_cma", "cr_fm_nes", "novelty_es", "deep_ga", "cma_es"):
        config = validate_config(
            {
                "environment": {"id": "function:sphere", "dimension": dimension},
                "solver": {
                    "kind": kind,
                    "population": members,
                    **({"covariance": "diagonal"} if kind == "cma_es" else {}),
                },
                "noise": {"size": 10 * dimension},
            },
            "benchmark",
        )
        trainer = Trainer(config, comm := Counting())
        trainer.build_table()
        updater = trainer.updater
        updater.begin(trainer.make_learner(None))
        for generation in range(generations + 1):
            parts, upcoming = updater.next_parts()
            updater.apply(parts, trainer.evaluator.evaluate(parts, generation, prefetch=upcoming))
            if generation == 0:  # the first sends what later ones need not
                comm.sent = dict.fromkeys(comm.sent, 0)
        found[kind] = {verb: round(count / generations) for verb, count in comm.sent.items()}
    return found


def report_bytes(found, dimension=2804, members=256, repeats=16):
    lines = [
        "## Bytes sent per generation",
        "",
        f"d = {dimension:,} parameters, n = {members} members, measured at the communicator: what one rank receives of",
        "the proposal, what comes back from all members, and the moments' blocks on their way to rank 0.",
        "",
        "| solver | proposal | members | moments | together |",
        "|---|---|---|---|---|",
    ]
    for kind, sent in found.items():
        numbers = [sent["broadcast"], sent["gathered"], sent["moments"]]
        lines.append(f"| {kind} | " + " | ".join(f"{n:,}" for n in [*numbers, sum(numbers)]) + " |")
    lines += [
        f"| estool's design, 4 n (d + 5) | | | | {4 * members * (dimension + 5):,} |",
        f"| es_on_gke's design, 8 n repeats d, {repeats} repeats | | | | {8 * members * repeats * dimension:,} |",
        "",
        "cma_es (diagonal here) sends whole candidates, once to each node; deep_ga sends snapshots every ten",
        "generations, not counted here; all others send indices' worth only.",
        "",
    ]
    return lines


def report(outcome, suites):
    """The result as Markdown."""
    table = tabulate(outcome["runs"])
    solvers = list(dict.fromkeys(row["solver"] for row in outcome["runs"]))
    lines = [
        "# Solvers on the COCO suites",
        "",
        f"Made by `{outcome['command']}` in {outcome['minutes']:.0f} minutes of one core; {outcome['machine']}.",
        "",
        "Mean evaluations to the final target over the instances that hit it; (h/r) where h of r did; - where none.",
        "Start 0, sigma 2, float64, default populations, no restarts. Budgets: "
        + "; ".join(f"{suite} {plan['budget']:,} d" for suite, plan in suites.items())
        + ".",
        "Instances: 1 to "
        + ", ".join(f"{count} for d {d}" for plan in suites.values() for d, count in plan["instances"].items())
        + ".",
        "",
    ]
    for suite in dict.fromkeys(key[0] for key in table):
        lines += [f"## {suite}", "", "| f | d | " + " | ".join(solvers) + " |", "|---" * (len(solvers) + 2) + "|"]
        for key in sorted(k for k in table if k[0] == suite):
            cells = []
            for solver in solvers:
                hits, runs, mean = table[key].get(solver, (0, 0, None))
                if not runs:
                    cells.append("not run")
                else:
                    cells.append("-" if mean is None else f"{mean:,.0f}" + (f" ({hits}/{runs})" if hits < runs else ""))
            lines.append(f"| f{key[2]} {NAMES[key[2]]} | {key[1]} | " + " | ".join(cells) + " |")
        lines.append("")
    lines += ["## Beside the other packages", ""]
    for ours, theirs in (("cma_es", "pycma"), ("cr_fm_nes", "crfmnes")):
        found = ratios(table, ours, theirs)
        if found:
            values = np.array(list(found.values()))
            lines.append(
                f"- {ours} / {theirs}: geometric mean {np.exp(np.log(values).mean()):.3f} over {len(values)} problems "
                f"(from {values.min():.2f} to {values.max():.2f})"
            )
    lines += ["", *report_bytes(outcome["bytes"])]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="d 5 and 10, two instances, f1 f2 f8 f10")
    parser.add_argument("--bytes", action="store_true", help="only the bytes sent; prints them")
    parser.add_argument("--instances", type=int, help="of every problem; default few in high dimension")
    parser.add_argument("--solvers", default=",".join(["cma_es", "pycma", "cr_fm_nes", "crfmnes", "snes", "sep_cma"]))
    parser.add_argument("--resume", action="store_true", help="go on with what an earlier run has written")
    parser.add_argument("--out", help="path without suffix; default results/solver_suites, with --short behind it")
    arguments = parser.parse_args()
    if arguments.bytes:
        print("\n".join(report_bytes(measure_bytes())))
        return
    suites = SUITES
    if arguments.short:
        suites = {"bbob": SUITES["bbob"] | {"instances": {5: 2, 10: 2}, "functions": (1, 2, 8, 10)}}
    for plan in suites.values():
        plan["instances"] = {d: arguments.instances or count for d, count in plan["instances"].items()}
    out = Path(arguments.out or RESULTS / f"solver_suites{'_short' if arguments.short else ''}")
    out.parent.mkdir(parents=True, exist_ok=True)
    outcome = {
        "command": " ".join(["python", "benchmarks/solver_suites.py", *sys.argv[1:]]),
        "machine": f"{platform.machine()}, Python {platform.python_version()}, "
        + ", ".join(f"{name} {version(name)}" for name in ("numpy", "cma", "crfmnes", "coco-experiment")),
        "minutes": 0.0,
        "runs": [],
    }
    if out.with_suffix(".json").exists() and arguments.resume:
        outcome = json.loads(out.with_suffix(".json").read_text())
    outcome["bytes"] = measure_bytes()

    def save(seconds):
        outcome["minutes"] += seconds / 60
        out.with_suffix(".json").write_text(json.dumps(outcome, indent=1) + "\n")
        out.with_suffix(".md").write_text(report(outcome, suites))

    run_suites(arguments.solvers.split(","), suites, outcome["runs"], save)
    print(report(outcome, suites))


if __name__ == "__main__":
    main()
