"""Environments from gymnasium's registry, among them those of this package and ale-py's Atari games."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mpies.core.errors import EnvironmentProblem
from mpies.core.text import message_of
from mpies.envs import envpool_env
from mpies.envs.build_errors import explain_build_errors, missing_package, suggest_ids, suggest_pybullet

if TYPE_CHECKING:
    import gymnasium

ATARI_STEPS = 27_000  # time limit of a game, EnvPool's own
HEIGHT, LARGEST_BLOCK = 210, 160  # pixels: of a frame, and its width


@functools.cache
def load_registry() -> dict[str, Any]:
    """gymnasium's registry, ids to specs, after adding the environments of this package."""
    import gymnasium

    gymnasium.logger.min_level = gymnasium.logger.ERROR
    gymnasium.register("CartPoleSwingUp-v0", "mpies.envs.cartpole_swingup:CartPoleSwingUp", max_episode_steps=1000)
    gymnasium.register("LQR-v0", "mpies.envs.lqr:LQR", max_episode_steps=300)
    return gymnasium.registry


def offers(environment_id: str) -> bool:
    """Whether gymnasium has this id, or could have it with ale-py installed."""
    return environment_id in load_registry() or environment_id.startswith("ALE/")


def name_in_gymnasium(environment_id: str) -> str:
    """The id that one of EnvPool's environments has in gymnasium: EnvPool's Pong-v5 is ALE/Pong-v5."""
    is_game = environment_id not in load_registry() and envpool_env.is_atari(environment_id)
    return f"ALE/{environment_id}" if is_game else environment_id


def make(environment_id: str, max_steps: int | None = None, **kwargs: Any) -> gymnasium.Env[Any, Any]:
    """Build an environment of gymnasium's registry.

    max_steps: time limit, None for the environment's own.  kwargs: for its constructor.
    Raises EnvironmentProblem if the id is unknown or the environment cannot be built.
    """
    import gymnasium

    known = load_registry()
    with explain_build_errors(environment_id):
        try:
            if environment_id.startswith("ALE/"):
                return _make_atari(environment_id, max_steps, **kwargs)
            return gymnasium.make(environment_id, max_episode_steps=max_steps, disable_env_checker=True, **kwargs)
        except gymnasium.error.DependencyNotInstalled as error:
            raise missing_package(environment_id, error) from error
        except gymnasium.error.Error as error:
            hint = suggest_ids(environment_id, known) + suggest_pybullet(environment_id)
            if (name := name_in_gymnasium(environment_id)) != environment_id:
                hint = f"; its name in gymnasium is {name}"
            hint = hint or "; name a known id, my_package:ID to import what registers it, or path/to/file.py:name"
            if not envpool_env.is_installed():
                hint += '; EnvPool, which has more environments, is not installed: pip install "mpies[envpool]"'
            raise EnvironmentProblem(
                f"environment.id {environment_id!r} is not known to gymnasium ({message_of(error)}){hint}"
            ) from error


def _make_atari(
    environment_id: str,
    max_steps: int | None,
    frame_skip: int = 4,
    repeat_action_probability: float = 0.0,
    blocks: int | None = None,
    rows: Sequence[int] | None = None,
    actions: Sequence[int] | None = None,
    **kwargs: Any,
) -> gymnasium.Env[Any, Any]:
    """A game of ale-py, preprocessed as EnvPool does it.

    Observations are 4 grey frames of 84 x 84 pixels, or those of AtariBlocks.  An episode begins with up to 30 no-ops
    and lasts all lives.

    blocks, rows: the size and the rows of AtariBlocks.
    actions: the game's actions that a policy may choose; None for all.
    """
    if "frameskip" in kwargs:  # the preprocessing skips frames in place of the emulator
        raise EnvironmentProblem(
            f"{environment_id}: kwargs.frameskip is not for kwargs: use environment.frame_skip; remove it"
        )
    import ale_py
    import gymnasium
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TimeLimit, TransformAction

    from mpies.envs.atari_blocks import AtariBlocks

    gymnasium.register_envs(ale_py)
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    _check_probability(environment_id, repeat_action_probability)
    if blocks is None:
        if rows is not None:
            raise EnvironmentProblem(f"{environment_id}: kwargs.rows is for kwargs.blocks alone; leave it out")
        kwargs["repeat_action_probability"] = repeat_action_probability
        bare = gymnasium.make(environment_id, disable_env_checker=True, frameskip=1, **kwargs)
        environment: gymnasium.Env[Any, Any] = FrameStackObservation(AtariPreprocessing(bare, frame_skip=frame_skip), 4)
    else:
        _check_blocks(environment_id, blocks, rows)
        kwargs["repeat_action_probability"] = 0.0  # AtariBlocks does it, by the seed of the episode
        # Without sticky actions the emulator skips the frames itself, which is faster.
        frames, skipped = (frame_skip, 1) if repeat_action_probability else (1, frame_skip)
        bare = gymnasium.make(
            environment_id, disable_env_checker=True, frameskip=skipped, obs_type="grayscale", **kwargs
        )
        environment = AtariBlocks(bare, blocks, rows, frames, repeat_action_probability)
    if actions is not None:
        _check_actions(environment_id, actions, int(environment.action_space.n))  # type: ignore[attr-defined]
        space = gymnasium.spaces.Discrete(len(actions))
        environment = TransformAction(environment, lambda action: actions[int(action)], space)
    return TimeLimit(environment, max_steps or ATARI_STEPS)


def _check_blocks(environment_id: str, blocks: Any, rows: Any) -> None:
    if isinstance(blocks, bool) or not isinstance(blocks, int) or not 1 <= blocks <= LARGEST_BLOCK:
        raise EnvironmentProblem(
            f"{environment_id}: kwargs.blocks must be a whole number from 1 to {LARGEST_BLOCK}, the height and width "
            f"of a block in pixels, but is {blocks!r}"
        )
    is_range = _has_whole_numbers(rows) and len(rows) == 2
    if rows is not None and not (is_range and rows[0] >= 0 and rows[0] + blocks <= rows[1] <= HEIGHT):
        raise EnvironmentProblem(
            f"{environment_id}: kwargs.rows must be the first row of pixels that counts and the first one after them, "
            f"such as [34, 194] of {HEIGHT}, with room for a block between them, but is {rows!r}"
        )


def _check_probability(environment_id: str, value: Any) -> None:
    """value: of sticky actions."""
    if type(value) not in (int, float) or not 0 <= value < 1:
        raise EnvironmentProblem(
            f"{environment_id}: kwargs.repeat_action_probability must be a number from 0 to less than 1, such as 0.25, "
            f"but is {value!r}"
        )


def _check_actions(environment_id: str, actions: Any, count: int) -> None:
    """count: of the game's own actions."""
    if not _has_whole_numbers(actions) or not actions or any(action not in range(count) for action in actions):
        raise EnvironmentProblem(
            f"{environment_id}: kwargs.actions must be a list of the game's actions, 0 to {count - 1}, such as "
            f"[0, 2, 3], but is {actions!r}"
        )


def _has_whole_numbers(value: Any) -> bool:
    """Whether a value is a list or tuple of nothing but whole numbers."""
    return isinstance(value, (list, tuple)) and all(type(number) is int for number in value)
