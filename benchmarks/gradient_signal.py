"""How much of an estimated gradient is signal: the cosine between estimates of independent generations at one policy.

    python benchmarks/gradient_signal.py CONFIG [KEY=VALUE ...] [--sigma 0.01 0.03 ...] [--generations 12]
                                         [--inputs 22 23 ...]

The solver of CONFIG is openai_es.  Its steps are made so small that the policy stays where it is; policy.init_from=FILE
says where.  Two estimates of the same gradient, each the sum of the gradient and of noise, have a cosine of s / (s + n)
on average, where s and n are the squared norms of both.  Noise of the sampling alone, for a smooth fitness, leaves
m / (m + d) for m antithetic pairs and d parameters, which is printed beside it.  Where the measured cosine is no
larger than its error, steps are mostly a random walk: try another sigma, fewer parameters or more members.

With --inputs, the numbers of inputs of a linear policy that belong together, a second table follows for each sigma: the
share of each group in the squared norm of the gradient, and in that of the estimates, which are mostly noise.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

import mpies

LEARNING_RATE = 1e-3  # of plain gradient steps: far below sigma times the root of the number of parameters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--sigma", type=float, nargs="+", help="default: that of the config")
    parser.add_argument("--generations", type=int, default=12)
    parser.add_argument("--inputs", type=int, nargs="+", help="sizes of groups of inputs; the policy is linear")
    arguments = parser.parse_intermixed_args()
    if arguments.generations < 4:
        parser.error("--generations: expected 4 at least")
    print(f"{'sigma':>8}  {'cosine':>8}  {'error':>7}  {'smooth':>7}  {'steps':>10}  {'return':>8}  deviation")
    for sigma in arguments.sigma or [None]:
        settings = [*arguments.overrides, *([f"solver.sigma={sigma}"] if sigma else [])]
        line, steps = measure(arguments.config, settings, arguments.generations)
        print(line, flush=True)
        if arguments.inputs:
            print_shares(steps, arguments.inputs)


def measure(config: str, overrides: list[str], generations: int) -> tuple[str, npt.NDArray[np.float64]]:
    """One line of the table, and the steps (generations, d), each an estimate of the gradient."""
    means: list[npt.NDArray[np.float64]] = []

    def note_mean(run: mpies.Run, _row: object) -> None:
        means.append(run.policy().parameters.astype(np.float64))

    with tempfile.TemporaryDirectory() as folder:
        run = mpies.train(
            config,
            *overrides,
            f"solver.optimizer={{kind: sgd, momentum: 0, learning_rate: {LEARNING_RATE}}}",
            "solver.weight_decay=0",
            f"stop={{generations: {generations + 1}}}",
            "evaluation={every: 1000000, episodes: 1}",
            out=Path(folder) / "run",
            callbacks=note_mean,
            progress=False,
        )
        metrics, episodes = run.metrics, run.config.solver.episodes
    steps = np.diff(means, axis=0)
    cosine, error = mean_cosine(steps)
    pairs, parameters = metrics["episodes"][0] / episodes / 2, steps.shape[1]
    columns = [metrics[name].mean() for name in ("return_mean", "return_std")]
    line = (
        f"{metrics['sigma'][-1]:8g}  {cosine:8.4f}  {error:7.4f}  {pairs / (pairs + parameters):7.4f}  "
        f"{metrics['steps'][-1] / len(means):10,.0f}  {columns[0]:8.1f}  {columns[1]:.1f}"
    )
    return line, steps


def mean_cosine(steps: npt.NDArray[np.float64]) -> tuple[float, float]:
    """The mean cosine between different rows of `steps`, and its standard error by the jackknife over rows."""
    directions = steps / np.linalg.norm(steps, axis=1, keepdims=True)
    cosines = directions @ directions.T
    count = len(steps)
    total, rows = cosines.sum() - count, cosines.sum(axis=1) - 1
    without = (total - 2 * rows) / ((count - 1) * (count - 2))  # the mean where one row is left out
    error = np.sqrt((count - 1) / count * ((without - without.mean()) ** 2).sum())
    return float(total / (count * (count - 1))), float(error)


def print_shares(steps: npt.NDArray[np.float64], sizes: list[int]) -> None:
    """The table of --inputs.  A row of `steps` (generations, d): the weights (inputs, outputs), then the biases."""
    outputs, rest = divmod(steps.shape[1], sum(sizes) + 1)
    if rest:
        raise SystemExit(f"--inputs: {sum(sizes)} inputs and a bias do not divide {steps.shape[1]} parameters")
    gradient, estimates = (value(steps) for value in (signal, energy))
    print(f"{'inputs':>12}  {'gradient':>8}  {'error':>7}  estimates")
    for end, size in zip(np.cumsum(sizes), sizes, strict=True):
        part = steps[:, (end - size) * outputs : end * outputs]
        shares = [signal(np.delete(part, row, 0)) / signal(np.delete(steps, row, 0)) for row in range(len(steps))]
        error = np.sqrt((len(steps) - 1) * np.var(shares))  # by the jackknife over rows
        share = signal(part) / gradient
        print(f"{end - size:>5} to {end - 1:>3}  {share:8.3f}  {error:7.3f}  {energy(part) / estimates:.3f}")


def signal(steps: npt.NDArray[np.float64]) -> float:
    """The mean dot product of different rows: the squared norm of the gradient, without the noise of the estimates."""
    return float((steps.sum(axis=0) ** 2).sum() - (steps**2).sum()) / (len(steps) * (len(steps) - 1))


def energy(steps: npt.NDArray[np.float64]) -> float:
    """The mean squared norm of the rows."""
    return float((steps**2).sum(axis=1).mean())


if __name__ == "__main__":
    main()
