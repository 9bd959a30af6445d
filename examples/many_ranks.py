"""Train on several ranks, with the same bits: `python examples/many_ranks.py`.

A rank is one process.  `ranks=2` starts two of them with mpirun and follows them; this script itself runs once.  On a
cluster, the command line is the better choice: `mpies train CONFIG --hosts node1:16,node2:16`, or `mpies launch`.
"""

import csv
from pathlib import Path

import mpies

OVERRIDES = ["solver.population=32", "noise.size=1_000_000", "stop={generations: 5}"]


def digests(run):
    """The SHA-256 of the learner's state after each generation."""
    with open(Path(run.path) / "metrics.csv", newline="") as file:
        return [row["digest"] for row in csv.DictReader(file)]


def main(folder="runs"):
    alone = mpies.train("cartpole", *OVERRIDES, out=f"{folder}/one_rank")
    together = mpies.train("cartpole", *OVERRIDES, out=f"{folder}/two_ranks", ranks=2)
    for generation, pair in enumerate(zip(digests(alone), digests(together), strict=True), 1):
        print(generation, *(digest[:16] for digest in pair), "the same" if len(set(pair)) == 1 else "DIFFERENT")


if __name__ == "__main__":
    main()
