"""One generation of every recipe's environment on 1 and on 2 ranks: are the digests equal?

    python benchmarks/every_environment.py [ID ...]

Networks are tiny and episodes short: this checks bits, not speed.  Exit code 1 if any digests differ.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from mpies.core.errors import ConfigError
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


def main() -> int:
    """Check the ids on the command line, or all.  Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("ids", nargs="*", metavar="ID", help="default: all that the recipes use")
    ids = parser.parse_args().ids or IDS
    try:
        different = [environment_id for environment_id in ids if not verify(environment_id)]
    except ConfigError as error:
        parser.exit(2, f"every_environment: {error}\n")
    print(f"not the same bits: {', '.join(different)}" if different else "the same bits everywhere")
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
