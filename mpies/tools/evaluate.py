"""Play a saved policy on held-out episodes."""

from pathlib import Path
from typing import Any

from mpies.rollouts.batch import RolloutBatch, evaluation_batch
from mpies.rollouts.queue import play_alone
from mpies.runs.policy_file import PolicyFile, load_policy
from mpies.runs.snapshot import Evaluation
from mpies.training.task import Task

HELD_OUT = 0  # the generation of these seeds: training evaluates at generations from 1 on


def held_out_batch(policy: PolicyFile, task: Task, episodes: int, seed: int | None = None) -> RolloutBatch:
    """Episodes of a policy that training never played.  seed: of the episodes; None takes the run's."""
    seeds = task.evaluation_seeds(HELD_OUT, 0, episodes, seed)
    normalization = policy.arrays["normalization"] if task.observation_size else None
    return evaluation_batch(policy.arrays["parameters"], seeds, normalization)


def evaluate_policy(path: str | Path, episodes: int, seed: int | None = None) -> dict[str, Any]:
    """Play held-out episodes of a policy file or a run's best policy.  Returns the results, ready for JSON."""
    policy = load_policy(path)
    task = Task(policy.config, policy.constants)
    records, failures = play_alone(task.player, held_out_batch(policy, task, episodes, seed))
    evaluation = Evaluation(records["total"], records["steps"])
    return {
        "environment": policy.config.environment.id,
        "policy": str(policy.path),
        "generation": policy.generation,
        "episodes": episodes,
        "mean": evaluation.mean,
        "std": evaluation.deviation,
        "interval": evaluation.interval,
        "min": float(evaluation.returns.min()),
        "max": float(evaluation.returns.max()),
        "length": evaluation.length,
        "failures": len(failures),
        "returns": evaluation.returns.tolist(),
    }


def describe_evaluation(result: dict[str, Any]) -> str:
    """The results of `evaluate_policy` in one line."""
    low, high = result["mean"] - result["interval"], result["mean"] + result["interval"]
    return (
        f"{result['environment']}, {result['policy']}, generation {result['generation']}: mean return "
        f"{result['mean']:.2f} over {result['episodes']} held-out episodes "
        f"(95 % confidence {low:.2f} to {high:.2f}; min {result['min']:.2f}, max {result['max']:.2f}, "
        f"mean length {result['length']:.0f})"
    )
