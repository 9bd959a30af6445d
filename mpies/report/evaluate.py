"""Play a saved policy on held-out episodes."""

import contextlib
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from mpies.core.errors import ConfigError
from mpies.core.text import counted
from mpies.rollouts.batch import RolloutBatch, evaluation_batch
from mpies.rollouts.queue import play_alone
from mpies.runs.files import check_writable, write_atomically
from mpies.runs.metrics import format_return
from mpies.runs.own_files import refuse_run_file
from mpies.runs.policy_file import PolicyFile
from mpies.runs.snapshot import Evaluation
from mpies.training.replay import load_policy_of
from mpies.training.task import Task

HELD_OUT = 0  # the generation of these seeds: training evaluates at generations from 1 on


def held_out_batch(
    policy: PolicyFile, task: Task, episodes: int, seed: int | None = None, deterministic: bool = True
) -> RolloutBatch:
    """Episodes of a policy that training never played.

    seed: of the episodes; None takes the run's.
    deterministic: whether the most likely actions are taken; False draws them as training did, and raises ConfigError
    where training drew nothing.
    """
    seeds = task.evaluation_seeds(HELD_OUT, 0, episodes, seed)
    normalization = policy.arrays["normalization"] if task.observation_size else None
    batch = evaluation_batch(policy.arrays["parameters"], seeds, normalization)
    if deterministic:
        return batch
    if task.policy is None or not task.policy.head.is_random:
        raise ConfigError(
            f"{policy.path}: its actions are not drawn at random, since it has neither policy.action_noise nor "
            "policy.sampling; leave --stochastic (deterministic=False) out"
        )
    return replace(batch, action_seeds=task.held_out_action_seeds(HELD_OUT, 0, episodes, seed))


def play_held_out(
    policy: PolicyFile, episodes: int, seed: int | None = None, deterministic: bool = True
) -> tuple[npt.NDArray[Any], dict[int, str]]:
    """Play held-out episodes of a policy, as `held_out_batch` says.  Returns what `play_alone` does."""
    with contextlib.closing(Task(policy.config, policy.constants)) as task:
        return play_alone(task.player, held_out_batch(policy, task, episodes, seed, deterministic))


def evaluate_policy(
    path: str | Path,
    episodes: int,
    seed: int | None = None,
    deterministic: bool = True,
    generation: int | None = None,
) -> dict[str, Any]:
    """Play held-out episodes of a policy, as `held_out_batch` says.

    path, generation: as for `load_policy_of`.
    Returns the results, ready for JSON.  Where episodes failed, mean and the like are those of the others; `failures`
    counts them, `reasons` has their messages, and `returns` has None in their places.  `lengths` are in steps.
    `interval` is half the width of the 95 % confidence interval, None where fewer than two episodes worked.
    """
    policy = load_policy_of(path, generation)
    records, failures = play_held_out(policy, episodes, seed, deterministic)
    evaluation = Evaluation.of(records["total"], records["steps"])
    returns = evaluation.returns
    has_any = len(returns) > 0
    return {
        "environment": policy.config.environment.id,
        "policy": str(policy.path),
        "generation": policy.generation,
        "episodes": episodes,
        "mean": evaluation.mean if has_any else None,
        "std": evaluation.deviation if has_any else None,
        "interval": evaluation.interval if len(returns) > 1 else None,
        "min": float(returns.min()) if has_any else None,
        "max": float(returns.max()) if has_any else None,
        "length": evaluation.length if has_any else None,
        "failures": evaluation.failures,
        "reasons": sorted(set(failures.values())),
        "returns": [total if math.isfinite(total) else None for total in records["total"].tolist()],
        "lengths": records["steps"].tolist(),
    }


def require_writable(file: str) -> None:
    """Raise ConfigError where `write_episodes` could not write this file, or must not.  Nothing is changed."""
    try:
        refuse_run_file(file)
        check_writable(file)
    except OSError as error:
        raise _unwritable(file, error) from None


def write_episodes(result: dict[str, Any], file: str) -> None:
    """Write the episodes of `evaluate_policy` as CSV; the return of one that failed is an empty cell.

    Raises ConfigError where the file cannot be written.
    """
    episodes = zip(result["returns"], result["lengths"], strict=True)
    cells = ((number, "" if total is None else f"{total:.9g}", steps) for number, (total, steps) in enumerate(episodes))
    lines = ["episode,return,length", *(f"{number},{total},{steps}" for number, total, steps in cells)]
    try:
        write_atomically(file, ("\n".join(lines) + "\n").encode())
    except OSError as error:
        raise _unwritable(file, error) from None


def _unwritable(file: str, error: OSError) -> ConfigError:
    return ConfigError(f"--csv {file or repr(file)}: cannot be written ({error.strerror}); give another file")


def describe_evaluation(result: dict[str, Any]) -> str:
    """The results of `evaluate_policy` in one line."""
    failures, episodes, reasons = result["failures"], result["episodes"], result["reasons"]
    subject = f"{result['environment']}, {result['policy']}, generation {result['generation']}"
    if failures:
        more = f", and {counted(len(reasons) - 1, 'other reason')}" if len(reasons) > 1 else ""
        subject += f": {failures} of {episodes} held-out episodes failed ({reasons[0]}{more})"
        if failures == episodes:
            return subject
        subject += "; of the others"
    if result["interval"] is None:
        mean, length = format_return(result["mean"]), result["length"]
        return f"{subject}: return {mean} in a held-out episode of {length:.0f} steps"
    low, high = result["mean"] - result["interval"], result["mean"] + result["interval"]
    return (
        f"{subject}: mean return {format_return(result['mean'])} over {episodes - failures} held-out episodes "
        f"(95 % confidence {format_return(low)} to {format_return(high)}; min {format_return(result['min'])}, "
        f"max {format_return(result['max'])}, "
        f"mean length {result['length']:.0f})"
    )
