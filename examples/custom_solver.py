"""Write a solver: `python examples/custom_solver.py`.

A solver is a class of options and four methods.  Members, ranks, checkpoints and resuming are done for it.  It never
sees the parameters of the members: it asks for weighted sums of their noise, which are called moments.
"""

import numpy as np
from pydantic import Field

import mpies
from mpies.solvers import check_solver
from mpies.solvers.base import Gaussian, Solver
from mpies.solvers.moments import Weights, no_square
from mpies.solvers.options import Population, Positive


class PlainOptions(Population):
    """The keys of the solver's section in a config, beside `population`."""

    kind: str = "plain"
    sigma: Positive = Field(0.2, description="standard deviation of the members")
    learning_rate: Positive = Field(0.1, description="factor of the step")


class Plain(Solver[PlainOptions, Gaussian]):
    """Steps along the estimated gradient of the mean return (Wierstra et al. 2014), with a fixed sigma."""

    Options = PlainOptions
    state_fields = ("mean",)  # what a checkpoint keeps

    def begin(self):
        """The state at the beginning of a run; `mean` is there already."""

    def propose(self):
        """What rank 0 sends to all ranks: members are mean + sigma z."""
        return Gaussian(self.mean, np.full(1, self.options.sigma, np.float32))

    def compute_weights(self, results, proposal):
        """The weight of each member, the same on every rank: its standardised return.  A failed member has NaN."""
        returns = np.where(np.isnan(results.returns), np.nanmin(results.returns), results.returns)
        standardised = (returns - returns.mean()) / (returns.std() + 1e-8)
        weights = np.float32(standardised / len(returns))
        return Weights(weights[None], no_square(len(returns)))  # (1, n), and no sums of squares

    def update(self, proposal, results, moments):
        """Move the mean, on rank 0.  moments[0] is the sum over members of weight times z, (d,)."""
        self.mean += np.float32(self.options.learning_rate / self.options.sigma) * moments[0]


def main(out="runs/custom_solver"):
    check_solver(Plain)  # tries it out on a small problem, and says in one line what is wrong
    run = mpies.train(
        "cartpole",
        f"solver={{kind: '{__file__}:Plain', population: 64}}",
        "noise.size=1_000_000",
        "stop={generations: 40, target: 475}",
        out=out,
    )
    print(f"{run.status} after {run.generation} generations: {run.best.evaluate(episodes=20).mean:.0f} of 500")


if __name__ == "__main__":
    main()
