"""Train a recipe and read what it left: `python examples/train_and_read.py`.

A run is a directory.  It can be read while training goes on, after it ended, and after it was killed.
"""

import gymnasium

import mpies


def main(out="runs/cartpole"):
    mpies.train("cartpole", "stop.generations=40", out=out)  # the same call again goes on where it ended

    run = mpies.load(out)
    print(run.status, run.reason, "after generation", run.generation)
    means = run.metrics["eval_mean"]  # a column of metrics.csv, NaN where the mean was not evaluated
    print("evaluations:", means[means == means])

    # The policy of the best evaluation, as a function of an observation.
    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=7)
    total, over = 0.0, False
    while not over:
        observation, reward, terminated, truncated, _ = env.step(run.best(observation))
        total, over = total + reward, terminated or truncated
    print("one episode:", total)
    result = run.best.evaluate(episodes=20)
    print(f"20 held-out episodes: {result.mean:.1f} +- {result.interval:.1f}")

    # The past: any mean is computed again from the ledger, any member can be played again.
    early = run.policy(generation=3)
    print(f"the policy of generation 3: {early.evaluate(episodes=20).mean:.1f}")
    member = run.play(3, 0)
    print("member 0 of generation 3, as recorded and as played now:", member.recorded, member.played)


if __name__ == "__main__":
    main()
