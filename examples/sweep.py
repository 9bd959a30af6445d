"""Compare settings over several seeds: `python examples/sweep.py`.

A sweep is a folder of runs, one for each of the settings and each seed.  The same call goes on with what is missing.
On the command line: `mpies sweep cartpole solver.sigma=0.05,0.2 --seeds 2 --ranks 2`.
"""

import mpies


def main(out="runs/sigmas"):
    result = mpies.sweep(
        {
            "environment": {"id": "CartPole-v1"},
            "policy": {"hidden": [8]},
            "solver": {"population": 32},
            "noise": {"size": 1_000_000},
            "evaluation": {"every": 5, "episodes": 20},
            "stop": {"generations": 10},
        },
        {"solver.sigma": [0.05, 0.2]},
        seeds=2,
        out=out,
    )
    for standing in result.standings:  # the best settings first
        print(standing.settings, f"{standing.mean:.1f}")
    print("the best settings:", result.best)
    for trial in result.trials:
        print(trial["name"], trial["state"])


if __name__ == "__main__":
    main()
