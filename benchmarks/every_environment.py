"""One generation of every recipe's environment on 1 and on 2 ranks: are the digests equal?

    python benchmarks/every_environment.py [ID ...]
    python benchmarks/every_environment.py --envpool --json benchmarks/results/envpool_ids.json

Networks are tiny and episodes short: this checks bits, not speed.  Exit code 1 if any digests differ.  With --envpool,
every id that EnvPool lists (or each ID) trains a generation in a process of its own, or is refused in one line.
"""

import argparse
import collections
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import yaml

from mpies.core.errors import ConfigError, UserError
from mpies.launch.train_again import verify_ranks

IDS = [
    *("CartPole-v1", "Pendulum-v1", "LunarLander-v3", "LunarLanderContinuous-v3"),
    *("BipedalWalker-v3", "BipedalWalkerHardcore-v3", "CartPoleSwingUp-v0", "LQR-v0"),
    *("HalfCheetah-v5", "Hopper-v5", "Swimmer-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5", "CartpoleSwingup-v1"),
    *("MinitaurBulletEnv-v0", "AntBulletEnv-v0", "HopperBulletEnv-v0", "KukaBulletEnv-v0", "RacecarBulletEnv-v0"),
    *("Pong-v5", "ALE/Pong-v5"),
]
CONFIG = """
environment: {{id: '{}', max_steps: 30}}
policy: {{hidden: []}}
solver: {{population: 8}}
noise: {{size: 400000}}
evaluation: {{episodes: 1}}
"""


def verify(environment_id: str) -> bool:
    """Whether one generation has the same digest on 1 and on 2 ranks; prints both."""
    with tempfile.TemporaryDirectory(prefix="mpies-environments-") as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(CONFIG.format(environment_id))
        return verify_ranks(path, [1, 2], 1, [])


def _train(environment_id: str, answer: Connection) -> None:
    """Train a generation, and send how that ended.  What libraries print goes nowhere."""
    import mpies

    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    values = yaml.safe_load(CONFIG.format(environment_id))
    values |= {"solver": {"population": 2}, "noise": {"size": 20_000}, "stop": {"generations": 1}}
    values["environment"] |= {"backend": "envpool", "max_steps": 10}
    with tempfile.TemporaryDirectory(prefix="mpies-environments-") as folder:
        os.chdir(folder)  # VizDoom writes a file into it
        for attempt in ("small", "large"):
            try:
                run = mpies.train(values, out=Path(folder) / attempt, progress=False)
                answer.send("trains" if len(run.metrics["steps"]) == 1 else "has no generation")
            except UserError as error:
                if "noise.size" in str(error) and attempt == "small":  # a policy of images
                    values["noise"]["size"] = 2**23
                    continue
                answer.send(f"refused: {error}".replace(sys.prefix, "."))
            except BaseException as error:
                answer.send(f"raises {type(error).__name__}: {error}")
            break


def try_envpool(ids: list[str], limit: float, until: float, found: dict[str, str]) -> Iterator[None]:
    """Each id of EnvPool to `trains`, or to what happened instead, as far as there is time.  Yields after each id.

    limit: seconds of each.  until: of time.monotonic.  found: what happened so far; it gains each id that is tried.
    """
    import envpool

    # Once, and not in every process; what makes threads must not run before a fork.
    import mpies.training.session  # noqa: F401
    from mpies.config.loading import make_config
    from mpies.runs import machine

    make_config(yaml.safe_load(CONFIG.format("CartPole-v1")), [], "config")
    machine.versions()
    fork = multiprocessing.get_context("fork")
    listed = sorted(envpool.list_all_envs())
    random.Random(1).shuffle(listed)  # what a run that is cut off has tried is a fair sample
    listed = sorted(listed, key=lambda name: name.partition("/")[2] in listed)  # second names of an environment last
    for environment_id in ids or [name for name in listed if name not in found]:
        if time.monotonic() > until:
            break
        ours, theirs = fork.Pipe(duplex=False)
        process = fork.Process(target=_train, args=(environment_id, theirs))
        process.start()
        theirs.close()
        try:
            found[environment_id] = ours.recv() if ours.poll(limit) else f"not over within {limit:g} s"
        except EOFError:
            process.join(10)
            found[environment_id] = f"ends the process with {process.exitcode}"
        process.kill()
        process.join()
        if found[environment_id] != "trains":
            print(f"{len(found)} {environment_id}: {found[environment_id]}", flush=True)
        yield


def main() -> int:
    """Check the ids on the command line, or all.  Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("ids", nargs="*", metavar="ID", help="default: all that the recipes use")
    parser.add_argument("--envpool", action="store_true", help="train every id that EnvPool lists")
    parser.add_argument("--limit", type=float, default=120, help="seconds for each of them")
    parser.add_argument("--minutes", type=float, default=600, help="for all of them")
    parser.add_argument("--json", metavar="FILE", help="keep what happened; ids in it are not tried again")
    options = parser.parse_args()
    ids = options.ids or IDS
    if options.envpool:
        file, counts = Path(options.json or os.devnull), collections.Counter[str]()
        found: dict[str, str] = json.loads(file.read_text())["ids"] if file.is_file() else {}
        until = time.monotonic() + 60 * options.minutes
        for _ in try_envpool(options.ids, options.limit, until, found):
            counts = collections.Counter(how.partition(":")[0] for how in found.values())
            file.write_text(json.dumps({"counts": counts, "ids": dict(sorted(found.items()))}, indent=1) + "\n")
        print(dict(counts))
        return int(any(not how.startswith(("trains", "refused")) for how in found.values()))
    try:
        different = [environment_id for environment_id in ids if not verify(environment_id)]
    except ConfigError as error:
        parser.exit(2, f"every_environment: {error}\n")
    print(f"not the same bits: {', '.join(different)}" if different else "the same bits everywhere")
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
