"""Play a saved policy: to measure it on held-out episodes, or to look at it, in a window or recorded to a file."""

import contextlib
import math
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.config.schema import Config
from mpies.core.errors import ConfigError
from mpies.core.text import counted, message_of
from mpies.envs import EnvironmentProblem
from mpies.envs.base import VectorEnv
from mpies.envs.build_errors import is_about_arguments
from mpies.envs.gymnasium_registry import name_in_gymnasium
from mpies.report.video import RENDERING, Video, recording
from mpies.rollouts.batch import RolloutBatch, evaluation_batch
from mpies.rollouts.queue import play_alone
from mpies.runs.formats.hdf5 import Arrays
from mpies.runs.formats.metrics import format_return
from mpies.runs.formats.policy_file import PolicyFile
from mpies.runs.snapshot import Evaluation
from mpies.training.replay import load_member, load_policy_of
from mpies.training.task import Task

HELD_OUT = 0  # the generation of these seeds: training evaluates at generations from 1 on


def held_out_batch(
    policy: PolicyFile, task: Task, episodes: int, seed: int | None = None, deterministic: bool = True
) -> RolloutBatch:
    """Episodes of a policy that training never played.

    seed: of the episodes; None takes the run's.
    deterministic: whether the most likely actions are taken; False draws them as training did, and raises ConfigError
    where training drew nothing.  Raises EnvironmentProblem where the environment is of another shape than in training.
    """
    parameters, normalization = policy.arrays["parameters"], policy.arrays["normalization"]
    _require_shape(task, parameters.size, normalization.shape[1])
    seeds = task.evaluation_seeds(HELD_OUT, 0, episodes, seed)
    batch = evaluation_batch(parameters, seeds, normalization if task.observation_size else None)
    if deterministic:
        return batch
    if task.policy is None or not task.policy.head.is_random:
        raise ConfigError(
            f"{policy.path}: its actions are not drawn at random, since it has neither policy.action_noise nor "
            "policy.sampling; leave --stochastic (deterministic=False) out"
        )
    return replace(batch, action_seeds=task.held_out_action_seeds(HELD_OUT, 0, episodes, seed))


def _require_shape(task: Task, dimension: int, observation_size: int) -> None:
    """Raise EnvironmentProblem where a policy of this shape, as of Task, cannot play a task."""
    if (task.dimension, task.observation_size) != (dimension, observation_size):
        place = f" in {task.env.backend}" if isinstance(task.env, VectorEnv) else ""
        raise EnvironmentProblem(
            f"{task.config.environment.id} has another shape{place} than where the policy was trained, so it cannot be "
            f"played there: it needs {task.dimension:,} parameters and statistics of {task.observation_size:,} "
            f"observations, but the policy has {dimension:,} and {observation_size:,}"
        )


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
        "std": evaluation.std if has_any else None,
        "interval": evaluation.interval if len(returns) > 1 else None,
        "min": float(returns.min()) if has_any else None,
        "max": float(returns.max()) if has_any else None,
        "length": evaluation.length if has_any else None,
        "failures": evaluation.failures,
        "reasons": sorted(set(failures.values())),
        "returns": [total if math.isfinite(total) else None for total in records["total"].tolist()],
        "lengths": records["steps"].tolist(),
    }


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
        f"max {format_return(result['max'])}, mean length {result['length']:.0f})"
    )


@contextlib.contextmanager
def visible_task(config: Config, video: Video | None, constants: Arrays | None = None) -> Iterator[Task]:
    """A Task whose environments render each step into the video, or into a window where that is None.

    EnvPool renders nothing, so gymnasium takes its place.  constants: of the policy, as for Task.
    Raises ConfigError where there is nothing to see, or no screen for a window, and EnvironmentProblem where the
    environment cannot be built.
    """
    section = config.environment
    if section.function is not None:
        raise ConfigError(f"{section.id} has no episodes to show")
    has_screen = any(name in os.environ for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    has_screen |= sys.platform in ("darwin", "win32")
    if not video and not has_screen:
        raise ConfigError("there is no screen here: record with --video FILE.mp4 or FILE.gif")
    if not has_screen:
        os.environ.setdefault("MUJOCO_GL", "egl")  # renders without a screen; read when mujoco is imported
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    changes = {
        "id": name_in_gymnasium(section.id.removeprefix("envpool:")),
        "backend": "gymnasium" if section.backend == "envpool" else section.backend,
        "kwargs": {**section.kwargs, "render_mode": "rgb_array" if video else "human"},
    }
    try:
        task = Task(config.model_copy(update={"environment": section.model_copy(update=changes)}), constants)
    except EnvironmentProblem as error:
        if error.__cause__ is None or not is_about_arguments(error.__cause__):
            raise
        reason = message_of(error.__cause__)  # training builds it without render_mode
        raise EnvironmentProblem(f"{section.id} cannot be shown: {reason}; {RENDERING}") from error
    env = task.env
    assert isinstance(env, VectorEnv)  # functions were refused above
    env.watch = video.add_frame if video else None
    try:
        yield task
    finally:
        env.close()


def show_episodes(task: Task, batch: RolloutBatch, rollouts: range | None = None) -> npt.NDArray[np.float64]:
    """Play the episodes of a batch, or these rollouts of it, one after the other.  Returns their returns (r,).

    task: of visible_task.  Raises EnvironmentProblem where an episode fails.
    """
    returns = []
    for rollout in range(len(batch)) if rollouts is None else rollouts:
        rows, failures = play_alone(task.player, batch, [rollout])
        for message in failures.values():
            raise EnvironmentProblem(f"{task.config.environment.id} cannot be shown: {message}")
        returns.append(rows["total"][0])
    return np.array(returns)


def show_policy(
    policy: PolicyFile, episodes: int, seed: int | None, video: str | Path | None, deterministic: bool = True
) -> npt.NDArray[np.float64]:
    """Show held-out episodes of a policy, as `held_out_batch` says.  Returns the returns (episodes,).

    video: the file to record to, None for a window.
    """
    with recording(video) as recorder, visible_task(policy.config, recorder, policy.constants) as task:
        return show_episodes(task, held_out_batch(policy, task, episodes, seed, deterministic))


def show_member(
    path: str | Path, generation: int, member: int, video: str | Path | None
) -> tuple[float, float, dict[int, str]]:
    """Replay a recorded member of a generation, and record its episodes to a file where `video` names one.

    Returns the recorded return, the replayed return, and the message of each episode that failed.
    """
    with recording(video) as recorder:
        recorded = load_member(path, generation, member)
        replayed, failures = recorded.replay()
        recorded.task.close()  # there may be no licence for a second object
        if recorder and not failures:
            policy = recorded.task.policy
            with visible_task(recorded.config, recorder, dict(policy.constants) if policy else None) as task:
                _require_shape(task, recorded.task.dimension, recorded.task.observation_size)
                show_episodes(task, recorded.batch, recorded.rollouts)
    return recorded.recorded_return, replayed, failures
