"""MuJoCo in batches: steps per processor second over bare `mj_step`, and over EnvPool.

    python benchmarks/mujoco_batches.py [--steps 100] [--repeats 5] [--json FILE]

For each task, in turn on one core: `mj_step` alone in 64 simulations, with random actions; the backend with the same
actions; whole generations of OpenAI-ES with a linear policy, the first ones, played by the backend and by EnvPool,
with the default of `environment.seeds` and with the seeds of a generation, for which EnvPool builds less anew.
Then the memory that 64 simulations take, the shares of the first generation that building and resetting and mj_step
take, and how many simulations a generation of 1,000 members has made.  Medians of the repeats, and of their ratios;
of three for the shares.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from mpies.comm.serial import Serial
from mpies.config.loading import validate_config
from mpies.envs import make_env
from mpies.envs.mujoco_env import MujocoEnv, _MujocoBatch
from mpies.training.trainer import make_trainer

HERE = Path(__file__).parent
SIDE_BY_SIDE = 64
LONGEST = 200  # steps of an episode in whole generations
MANY = 1000  # members of the generation whose simulations are counted
ENDLESS = {"terminate_when_unhealthy": False}
TASKS: dict[str, Mapping[str, Any]] = {
    "Hopper-v5": ENDLESS,
    "HalfCheetah-v5": {},
    "Walker2d-v5": ENDLESS,
    "Ant-v5": ENDLESS,
    "Humanoid-v5": ENDLESS,
    f"{HERE.parent}/examples/robots/go1.py:Go1": {"randomizes": False},
}
OTHERS = ("Swimmer", "Reacher", "Pusher", "InvertedPendulum", "InvertedDoublePendulum", "HumanoidStandup")
SHORT: dict[str, Mapping[str, Any]] = {f"{name}-v5": {} for name in OTHERS}
SEEDS = ("pair", "generation")  # values of environment.seeds
Figures = dict[str, float]


def backend_of(name: str) -> str:
    """auto for a custom task, which has no other."""
    return "mujoco" if name.endswith("-v5") else "auto"


def seconds_of(step: Callable[[], object]) -> float:
    """Seconds of processor time that a call takes."""
    began = time.process_time()
    step()
    return time.process_time() - began


def compare_steps(env: MujocoEnv, steps: int, repeats: int) -> tuple[float, float]:
    """Steps per second of the backend, and as a ratio of those of mj_step alone."""
    random = np.random.default_rng(1)
    size = len(env.interface.action.low)  # type: ignore[union-attr]
    bound = 0.0 if env.name.endswith("Go1") else 1.0  # which stands, since a fall would end its episode
    actions = random.uniform(-bound, bound, (steps, SIDE_BY_SIDE, size)).astype(np.float32)
    model, skip = env.model, env.task.frame_skip
    places = np.arange(SIDE_BY_SIDE, dtype=np.int32)

    def bare() -> None:
        batch = env.open(range(SIDE_BY_SIDE))
        for step in range(steps):
            for data, control in zip(batch.data.values(), actions[step], strict=True):
                data.ctrl[:] = control
                mujoco.mj_step(model, data, skip)
        batch.close()

    def backend() -> None:
        batch = env.open(range(SIDE_BY_SIDE))
        for step in range(steps):
            batch.send(places, actions[step])
            batch.receive()
        batch.close()

    pairs = [(seconds_of(bare), seconds_of(backend)) for _ in range(repeats)]
    count = steps * SIDE_BY_SIDE
    return count / statistics.median(ours for _, ours in pairs), statistics.median(one / ours for one, ours in pairs)


def play_generations(name: str, backend: str, generations: int, members: int, seeds: str = "pair") -> float:
    """Steps per second of the first generations, with a linear policy that begins at zero."""
    values = {
        "environment": {"id": name, "backend": backend, "seeds": seeds, "max_steps": LONGEST},
        "policy": {"hidden": []},
        "solver": {"population": members},
        "noise": {"size": 1_000_000},
        "evaluation": {"every": 0},
    }
    played: list[Any] = []
    config = validate_config(values, "benchmark")
    trainer = make_trainer(config, Serial(), on_play=lambda key, queues: played.extend(queues))
    trainer.restore()

    def generation() -> None:
        parts, upcoming = trainer.updater.next_parts()
        population = trainer.evaluator.evaluate(parts, trainer.updater.generation, prefetch=upcoming)
        trainer.updater.apply(parts, population)

    seconds = sum(seconds_of(generation) for _ in range(generations))
    trainer.task.close()
    return float(sum(queue.finished()["steps"].sum() for queue in played)) / seconds


def shares_of_generation(name: str) -> tuple[float, float, int]:
    """The shares of the first generation that opening batches and mj_step take, and how many simulations it has made.

    mj_step by the wall clock, which takes less time to read: nothing else may run.
    """
    spent, stepped, made = [0.0], [0.0], [0]
    initialize, make, advance = _MujocoBatch.__init__, mujoco.MjData, mujoco.mj_step

    def opened(batch: _MujocoBatch, *arguments: Any) -> None:
        spent[0] += seconds_of(lambda: initialize(batch, *arguments))

    def counted(model: Any) -> Any:
        made[0] += 1
        return make(model)

    def timed(*arguments: Any) -> None:
        began = time.perf_counter()
        advance(*arguments)
        stepped[0] += time.perf_counter() - began

    _MujocoBatch.__init__, mujoco.MjData, mujoco.mj_step = opened, counted, timed  # type: ignore[method-assign, misc]
    try:
        whole = seconds_of(lambda: play_generations(name, backend_of(name), 1, MANY))
    finally:
        _MujocoBatch.__init__, mujoco.MjData, mujoco.mj_step = initialize, make, advance  # type: ignore[method-assign, misc]
    return spent[0] / whole, stepped[0] / whole, made[0]


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, Figures] = {}
    for name, kwargs in {**TASKS, **SHORT}.items():
        key, figures = name.rpartition(":")[2], {}
        if name in TASKS:
            env: Any = make_env(name, backend_of(name), max_steps=10**6, **kwargs)
            before = resident()
            batch = env.open(range(SIDE_BY_SIDE))
            figures["MB of 64 simulations"] = (resident() - before) / 2**20
            batch.close()
            steps, ratio = compare_steps(env, options.steps, options.repeats)
            figures |= {"steps/s": steps, "of mj_step": ratio}
            shares = map(statistics.median, zip(*(shares_of_generation(name) for _ in range(3)), strict=True))
            figures |= zip(("opening, share", "mj_step, share", "simulations"), shares, strict=True)
        if key.endswith("-v5"):
            for seeds in SEEDS:
                ours, theirs = [], []
                for _ in range(options.repeats):
                    ours.append(play_generations(name, "mujoco", 2, 128, seeds))
                    theirs.append(play_generations(name, "envpool", 2, 128, seeds))
                ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
                figures[f"{seeds} seeds, steps/s"] = statistics.median(ours)
                figures[f"{seeds} seeds, of EnvPool"] = statistics.median(ratios)
        found[key] = figures
        print(f"{key:20}" + "  ".join(f"{what} {value:,.3g}" for what, value in figures.items()), flush=True)
    for what in (f"{seeds} seeds, of EnvPool" for seeds in SEEDS):
        mean = statistics.geometric_mean([figures[what] for figures in found.values() if what in figures])
        print(f"{what}, geometric mean: {mean:.3f}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
