"""Which part of the return a run's gradient reads, without any new episode.

    python benchmarks/fitness_signal.py RUN --generations 362 403 [--apart 10]

The ledger of RUN has the return and the length of each member, and the noise table has its direction.  So the gradient
can be estimated again with another fitness: the return, its rank, the length of the episode, or the return per step.
Estimates of different generations that are at most --apart generations apart have the cosines that are printed, with
their standard error.  It takes them as independent, and the policy between them as nearly the same.  A cosine within
its error is mostly noise.  A run may rise all the same: most of a step can be a random walk along parameters that
hardly matter.  See also gradient_signal.py.

The solver samples antithetic pairs, noise.kind is full, and generations do not overlap.
"""

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

import mpies
from mpies.solvers.sampling.noise import build_table, sample_indices
from mpies.solvers.shaping import centred_ranks

Vector = npt.NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--generations", type=int, nargs=2, required=True, metavar=("FIRST", "LAST"))
    parser.add_argument("--apart", type=int, default=10, help="most generations between two estimates")
    arguments = parser.parse_args()
    first, last = arguments.generations
    if not 1 <= first < last or arguments.apart < 1:
        parser.error("expected --generations FIRST LAST with 1 <= FIRST < LAST, and --apart of 1 at least")
    try:
        gradients = estimate_gradients(arguments.run, first, last)
    except mpies.UserError as error:
        raise SystemExit(f"fitness_signal.py: {error}") from None
    print(f"{'fitness':16}  {'cosine':>8}  error")
    for name, estimates in gradients.items():
        cosine, error = nearby_cosine(estimates, arguments.apart)
        print(f"{name:16}  {cosine:8.4f}  {error:.4f}")


def fitnesses(returns: Vector, lengths: Vector) -> dict[str, Vector]:
    """Name to fitness (n,) of members with these returns and lengths (n,)."""
    return {
        "return": returns,
        "rank of return": centred_ranks(returns).astype(np.float64),
        "length": lengths,
        "return per step": returns / lengths,
    }


def estimate_gradients(path: Path, first: int, last: int) -> dict[str, Vector]:
    """Name of a fitness to estimates (generations, d) of its gradient, of generations `first` to `last`."""
    run = mpies.Run(path)
    config, dimension = run.config, run.policy(first).parameters.size
    if not config.solver.antithetic or config.noise.kind != "full" or config.overlap:
        raise SystemExit(f"{path}: expected antithetic pairs, noise.kind full and no overlap; take another run")
    rows, size = config.solver.noise_rows(dimension), config.noise.size
    table = build_table(size, config.seed)
    estimates: dict[str, list[Vector]] = {}
    for generation in range(first, last + 1):
        members = run.members(generation)
        batches = len(members.returns) // (2 * rows)
        indices = [
            sample_indices(config.seed, generation - 1, batch, rows, size, dimension) for batch in range(batches)
        ]
        has_failed = np.isnan(members.returns).reshape(-1, 2).any(axis=1)  # pairs
        directions = np.stack([table[index : index + dimension] for index in np.concatenate(indices)])
        for name, fitness in fitnesses(members.returns, members.lengths).items():
            weights = np.where(has_failed, 0, fitness[0::2] - fitness[1::2])
            estimates.setdefault(name, []).append(weights @ directions.astype(np.float64))
    return {name: np.stack(vectors) for name, vectors in estimates.items()}


def nearby_cosine(estimates: Vector, apart: int) -> tuple[float, float]:
    """The mean cosine of rows that are at most `apart` rows apart, and its standard error."""
    directions = estimates / np.linalg.norm(estimates, axis=1, keepdims=True)
    cosines = directions @ directions.T
    pairs = np.concatenate([np.diag(cosines, lag) for lag in range(1, min(apart, len(estimates) - 1) + 1)])
    return float(pairs.mean()), float(pairs.std() / np.sqrt(len(pairs)))


if __name__ == "__main__":
    main()
