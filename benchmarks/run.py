"""Run the benchmarks one after the other and keep what each finds in results/NAME.json.

    python benchmarks/run.py [NAME ...] [--list]

Each benchmark measures all its contestants in turn on the same cores, prints its table, and can be run alone with
the command shown.  Do nothing else on the machine meanwhile.  Those that need root or the peers' environment are left
out with a line that says so.  Ranks are bound to cores where there is a core for each.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from mpies.comm import mpiexec

HERE = Path(__file__).parent
PEERS = HERE / "peers/.venv/bin/python"

ROLLOUTS = ["rollouts.py", HERE / "rollouts.yaml"]
FEW = ["--repeats", "3", "--between", "0"]  # a generation takes seconds
SHORT = ["environment.max_steps=200", "solver.population=16"]
HIDDEN_VELOCITY = HERE.parent / "configs/pendulum_hidden_velocity.yaml"
NODES_SLEEP = ["--step", "0.2", "--mean", "3", "--generations", "2"]
# Name: ranks that mpirun starts (0 for none), what it needs, script and arguments.
BENCHMARKS = {
    "rollouts-lunar-lander": (2, "", [*ROLLOUTS]),
    "rollouts-bipedal-walker": (2, "", [*ROLLOUTS, "environment.id=BipedalWalker-v3"]),
    "rollouts-hopper": (2, "", [*ROLLOUTS, "environment.id=Hopper-v5"]),
    "rollouts-ant-bullet": (2, "", [*ROLLOUTS, "environment.id=AntBulletEnv-v0", "environment.max_steps=100", *FEW]),
    "rollouts-minitaur": (2, "", [*ROLLOUTS, "environment.id=gym:MinitaurBulletEnv-v0", *SHORT, *FEW]),
    "rollouts-pong": (2, "", ["rollouts.py", HERE / "pong.yaml", "solver.population=16", *FEW]),
    "rollouts-pendulum-lstm": (2, "", ["rollouts.py", HIDDEN_VELOCITY, "--between", "0"]),
    "between-rollouts": (2, "", ["between_rollouts.py", "--all", "--repeats", "5"]),
    "between-rollouts-low-rank": (2, "", ["between_rollouts.py", "--low-rank", "--repeats", "5"]),
    "mujoco-batches": (0, "", ["mujoco_batches.py"]),
    "cores": (0, "", ["cores.py"]),
    "cores-busy": (0, "", ["cores.py", "--busy"]),
    "load-balance": (64, "", ["load_balance.py"]),
    "load-balance-nodes": (12, "", ["load_balance.py", "--nodes", "3", "--members", "40", *NODES_SLEEP]),
    "start-up": (0, "", ["start_up.py"]),
    "lost-nodes": (0, "root", ["lost_nodes.py"]),
    "lost-nodes-fast": (0, "root", ["lost_nodes.py", "--every", "20"]),
    "simulate": (0, "root", ["validate_simulate.py"]),
    "peers-lunar-lander": (0, "peers", ["against_peers.py", "LunarLander-v3"]),
    "peers-bipedal-walker": (0, "peers", ["against_peers.py", "BipedalWalker-v3"]),
    "peers-hopper": (0, "peers", ["against_peers.py", "Hopper-v5"]),
}


def command_of(name: str) -> list[str]:
    """The command line of a benchmark."""
    ranks, _, (script, *arguments) = BENCHMARKS[name]
    words = [sys.executable, *(["-m", "mpi4py"] if ranks else []), HERE / script, *arguments]
    words += ["--json", HERE / "results" / f"{name.replace('-', '_')}.json"]
    start = [mpiexec.find() or "mpiexec", "-n", ranks] if ranks else []
    if 0 < ranks <= len(os.sched_getaffinity(0)):
        start += ["--bind-to", "none"]  # the ranks bind themselves
    elif ranks:
        start += ["--map-by", "slot:oversubscribe"]  # else mpirun refuses more ranks than cores
    return list(map(str, [*start, *words]))


def missing_for(name: str) -> str:
    """What a benchmark needs and this machine lacks, in words; '' where nothing is missing."""
    needs = BENCHMARKS[name][1]
    if needs == "root" and os.geteuid():
        return "it makes network namespaces, which takes root"
    if needs == "peers" and not PEERS.exists():
        return "the peers are not installed: make benchmark-peers"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--list", action="store_true", help="print the commands and run nothing")
    options = parser.parse_args()
    unknown = set(options.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}; choose from {', '.join(BENCHMARKS)}")
    failed = []
    for name in options.names or BENCHMARKS:
        if options.list:
            print(f"{name}: {' '.join(command_of(name))}")
        elif missing := missing_for(name):
            print(f"== {name}: left out, since {missing}", flush=True)
        else:
            print(f"== {name}", flush=True)
            began = time.monotonic()
            done = subprocess.run(command_of(name), env=mpiexec.environment(), stdin=subprocess.DEVNULL)
            print(f"   {time.monotonic() - began:.0f} s, exit code {done.returncode}", flush=True)
            failed += [name] if done.returncode else []
    sys.exit(f"failed or fell short: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
