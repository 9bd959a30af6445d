"""Train every recipe, solver and policy kind for a few generations and record the digests, or compare with a record.

    python benchmarks/digests.py --record digests.json      before a change that must not change a bit
    python benchmarks/digests.py --compare digests.json     after it; exit 1 where a digest differs

Each case runs on one rank, on three ranks, and stopped after two of four generations and resumed.  All three must
give the same digests.  A record holds for one build of the packages and one type of processor.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
GENERATIONS = 4
COMMON = ["noise.size=1000000", "evaluation={every: 2, episodes: 3}", "checkpoint={every: 10}", "stop.target=null"]

# Overrides that make a recipe small enough.  Those that are not listed take SMALL.
SMALL = ["solver.population=8", "environment.max_steps=40"]
RECIPES = {
    "ant_bullet": ["solver.population=4", "environment.max_steps=20"],
    "bipedal_walker_hardcore": ["solver.population=8", "solver.episodes=2", "environment.max_steps=40"],
    "humanoid": ["solver.population=6", "solver.timesteps_per_batch=150", "environment.max_steps=20"],
    "humanoid_linear": ["solver.population=6", "environment.max_steps=20"],
    "lunar_lander_18": ["solver.population=6", "solver.episodes=2", "environment.max_steps=40"],
    "minitaur": ["solver.population=2", "solver.episodes=1", "environment.max_steps=5", "evaluation.episodes=1"],
    "pendulum_hidden_velocity": ["solver.population=6", "solver.episodes=2", "environment.max_steps=40"],
    "pong": ["solver.population=2", "environment.max_steps=6", "evaluation.episodes=1"],
    "rastrigin": ["solver.population=50"],
    "swimmer": ["environment.max_steps=40"],
    "walker2d": ["solver.population=60", "environment.max_steps=30"],
}
ENVIRONMENT = "environment={id: CartPole-v1, max_steps: 60}"
CONTINUOUS = "environment={id: Pendulum-v1, max_steps: 30}"
SOLVERS = {
    "openai_es sgd": "{population: 12, sigma: 0.2, optimizer: {kind: sgd}, fitness: centred_sign_rank}",
    "pepg": "{kind: pepg, population: 12}",
    "pepg elites": "{kind: pepg, population: 12, elite_ratio: 0.3}",
    "pgpe": "{kind: pgpe, population: 12, interactions: 300}",
    "ars": "{kind: ars, population: 12, top: 4, alive_bonus: 1}",
    "snes": "{kind: snes, population: 12}",
    "sep_cma": "{kind: sep_cma}",
    "cr_fm_nes": "{kind: cr_fm_nes}",
    "cma_es": "{kind: cma_es, population: 10}",
    "cma_es diagonal": "{kind: cma_es, population: 10, covariance: diagonal, restarts: ipop}",
    "cma_es vkd": "{kind: cma_es, population: 10, covariance: vkd}",
    "deep_ga": "{kind: deep_ga, population: 12, parents: 4, snapshot: 2}",
    "novelty_es": "{kind: novelty_es, population: 12, variant: nsra, means: 2}",
    "nevergrad": '{kind: "nevergrad:DE", population: 8}',
}
POLICIES = {
    "mlp time": [ENVIRONMENT, "policy={hidden: [8], time_input: 60}"],
    "mlp gaussian": [CONTINUOUS, "policy={hidden: [8], sampling: gaussian}"],
    "mlp noise": [CONTINUOUS, "policy={hidden: [8], action_noise: 0.1}"],
    "mlp softmax": [ENVIRONMENT, "policy={hidden: [8, 4], activation: relu, sampling: softmax}"],
    "mlp bins": [CONTINUOUS, 'policy={hidden: [8], bins: "uniform:5"}'],
    "lstm": [CONTINUOUS, "policy={kind: lstm, hidden: 6}"],
    "gru": [CONTINUOUS, "policy={kind: gru, hidden: 6}"],
    "elman": [ENVIRONMENT, "policy={kind: elman, hidden: 6}"],
    "gymnasium": ["environment={id: LunarLander-v3, backend: gymnasium, max_steps: 40}", "policy={hidden: [8]}"],
    "adaptive": ["environment={id: CartPole-v1, adaptive: {start: 12}}", "policy={hidden: [8]}"],
    "overlap": ["overlap=1", "environment={id: CartPole-v1, adaptive: {start: 20}}", "policy={hidden: [8]}"],
    "overlap pepg": ["overlap=1", ENVIRONMENT, "solver={kind: pepg, population: 12}"],
    "low rank": ["noise={kind: low_rank, rank: 2, size: 1000000}", ENVIRONMENT, "policy={hidden: [40, 30]}"],
}


def cases() -> dict[str, list[str]]:
    """Name of each case to the arguments of `mpies train`: the config and the overrides."""
    found = {}
    for path in sorted((HOME / "configs").glob("*.yaml")):
        shrunk = RECIPES.get(path.stem, SMALL)
        found[f"recipe {path.stem}"] = [str(path), *COMMON, *shrunk]
    cartpole = str(HOME / "configs/cartpole.yaml")
    for name, solver in SOLVERS.items():
        found[f"solver {name}"] = [cartpole, *COMMON, ENVIRONMENT, f"solver={solver}"]
    for name, overrides in POLICIES.items():
        solver = [] if any(key.startswith("solver=") for key in overrides) else ["solver={population: 12, sigma: 0.2}"]
        found[f"policy {name}"] = [cartpole, *COMMON, *solver, *overrides]
    return found


def train(ranks: int, out: Path, arguments: list[str]) -> list[str]:
    """Train on `ranks` ranks.  Returns the digests of all generations so far."""
    binaries = Path(sys.executable).parent
    command = [sys.executable, "-m", "mpies", "train", *arguments[:1], "--out", str(out), *arguments[1:]]
    if ranks > 1:
        command = [str(binaries / "mpirun"), "-n", str(ranks), *command]
    environment = os.environ | {
        "MPIES_PICTURES": "0",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_osc": "^ucx",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": "slot:oversubscribe",
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, cwd=out.parent)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with code {done.returncode}:\n{done.stderr[-2000:]}")
    with open(out / "metrics.csv", newline="") as file:
        return [row["digest"] for row in csv.DictReader(file)]


def digests_of(arguments: list[str]) -> list[str]:
    """The digests of a case.  Raises SystemExit where ranks or a resume change them."""
    with tempfile.TemporaryDirectory(prefix="mpies-digests-") as folder:
        place = Path(folder)
        whole = train(1, place / "one", [*arguments, f"stop.generations={GENERATIONS}"])
        three = train(3, place / "three", [*arguments, f"stop.generations={GENERATIONS}"])
        train(2, place / "resumed", [*arguments, f"stop.generations={GENERATIONS // 2}"])
        resumed = train(1, place / "resumed", [*arguments, f"stop.generations={GENERATIONS}"])
    if not whole == three == resumed:
        raise SystemExit(f"the digests differ: 1 rank {whole}, 3 ranks {three}, resumed {resumed}")
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--record", type=Path)
    wanted.add_argument("--compare", type=Path)
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    options = parser.parse_args()
    known = json.loads(options.compare.read_text()) if options.compare else {}
    chosen = {name: arguments for name, arguments in cases().items() if options.only in name}
    if not chosen:
        parser.error(f"no case has {options.only!r} in its name; there are {', '.join(cases())}")
    found, differing = {}, []
    for name, arguments in chosen.items():
        try:
            found[name] = digests_of(arguments)
        except SystemExit as error:
            print(f"{name}: {error}", flush=True)
            found[name] = []
            differing.append(name)
            continue
        verdict = ""
        if options.compare:
            verdict = "same" if known.get(name) == found[name] else "DIFFERS"
            if verdict != "same":
                differing.append(name)
        print(f"{name:<36} {found[name][-1][:16]}  {verdict}", flush=True)
    if options.record:
        options.record.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(found)} cases, {len(differing)} differ {differing or ''}")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
