"""What acting costs: microseconds per member and step of each kind of policy, and what an episode's beginning costs.

    OMP_NUM_THREADS=1 python benchmarks/forward.py [--json FILE]

They are microseconds of processor time, which other programs on the machine disturb less than the clock.
"""

import argparse
import json
import statistics
import time
from typing import Any

import numpy as np

from mpies.envs.base import Continuous, Discrete, Interface
from mpies.policies import POLICIES, aligned_stack, make_policy


def box(numbers: int) -> Continuous:
    return Continuous(-np.ones(numbers, np.float32), np.ones(numbers, np.float32))


IMAGE = Interface(4 * 84 * 84, Discrete(6), (4, 84, 84))
CASES = [  # name, kind, options, interface, members
    ("MLP 24-40-40-4", "mlp", {"hidden": [40, 40]}, Interface(24, box(4)), 32),
    ("MLP 376-256-256-17", "mlp", {"hidden": [256, 256]}, Interface(376, box(17)), 32),
    ("LSTM 2-16-1", "lstm", {}, Interface(2, box(1)), 32),
    ("GRU 2-16-1", "gru", {}, Interface(2, box(1)), 32),
    ("Elman 2-16-1", "elman", {}, Interface(2, box(1)), 32),
    ("Atari, virtual batch normalisation", "conv", {}, IMAGE, 8),
]


def measure(
    kind: str, options: dict[str, Any], interface: Interface, members: int, seconds: float = 0.2
) -> tuple[float, float, int]:
    """Microseconds per member and step (median of nine), and milliseconds of beginning an episode; and d."""
    random = np.random.default_rng(1)
    constants = {"reference": random.integers(256, size=(64, interface.observation_size)).astype(np.uint8)}
    policy = make_policy(POLICIES[kind].Options(**options), interface, constants if kind == "conv" else None)
    stack = aligned_stack(members, policy.size)
    stack[:] = 0.1 * random.standard_normal(stack.shape)
    actor = policy.bind(stack)
    began = time.process_time()
    for slot in range(members):
        actor.begin(slot)
    beginning = (time.process_time() - began) / members
    observations = random.random((members, interface.observation_size)).astype(np.float32)
    actor(observations)
    seconds_each = []
    for _ in range(9):
        began, steps = time.process_time(), 0
        while time.process_time() - began < seconds / 9:
            actor(observations)
            steps += 1
        seconds_each.append((time.process_time() - began) / steps / members)
    return 1e6 * statistics.median(seconds_each), 1e3 * beginning, policy.size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json")
    options = parser.parse_args()
    results = {}
    print(f"{'policy':<36} {'members':>7} {'parameters':>10} {'us/member/step':>15} {'ms/episode':>11}")
    for name, kind, settings, interface, members in CASES:
        step, beginning, size = measure(kind, settings, interface, members)
        results[name] = {"members": members, "parameters": size, "step_us": step, "episode_ms": beginning}
        print(f"{name:<36} {members:>7} {size:>10,} {step:>15.2f} {beginning:>11.2f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
