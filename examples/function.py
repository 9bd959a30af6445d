"""Minimise a function of a vector: `python examples/function.py`.

`mpies.minimize` searches with CMA-ES unless another solver is named.  Any solver can also be asked and told step by
step, which is for values that come from somewhere else: a laboratory, or a program on another machine.
"""

import numpy as np

import mpies


def rosenbrock(x):
    """A curved valley; its minimum is 0 at (1, ..., 1).  x: (d,)."""
    return float(np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2))


def main():
    found = mpies.minimize(rosenbrock, np.zeros(4), sigma=0.3, bounds=(-2, 2), target=1e-6, seed=1)
    print(f"CMA-ES: {found.value:.1e} after {found.evaluations} evaluations ({found.reason})")

    # The same by hand, with another solver and another function: ask for members, tell their values.
    search = mpies.AskTell("snes", np.zeros(10), sigma=0.3, seed=1)
    for _ in range(150):
        members = search.ask()  # (n, 10)
        search.tell(np.sum((members - 1) ** 2, axis=1))
    print(f"SNES: {search.best_value:.1e} after {search.evaluations} evaluations")


if __name__ == "__main__":
    main()
