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
# This package's own: id to the class and the time limit.
OWN = {
    "CartPoleSwingUp-v0": ("mpies.envs.cartpole_swingup:CartPoleSwingUp", 1000),
    "LQR-v0": ("mpies.envs.lqr:LQR", 300),
}
HEIGHT, LARGEST_BLOCK = 210, 160  # pixels: of a frame, and its width


@functools.cache
def load_registry() -> dict[str, Any]:
    """gymnasium's registry, ids to specs, after adding the environments of this package."""
    import gymnasium

    gymnasium.logger.min_level = gymnasium.logger.ERROR
    for name, (entry_point, max_steps) in OWN.items():
        gymnasium.register(name, entry_point, max_episode_steps=max_steps)
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
            elif envpool_env.offers(environment_id):
                hint = "; EnvPool has it, draws no pictures, and plays it without kwargs or with backend: envpool"
            hint = hint or "; name a known id, my_package:ID to import what registers it, or path/to/file.py:name"
            if not envpool_env.is_installed():
                hint += '; EnvPool, which has more environments, is not installed: pip install "mpies[envpool]"'
            elif not envpool_env.has_all_data():
                hint += "; some of EnvPool's need data that is not installed: pip install 'mpies[envpool]'"
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

    Observations are 4 grey frames of 84 x 84 pixels, those of AtariBlocks, or with obs_type="ram" those of AtariRam.
    An episode begins with up to 30 no-ops and lasts all lives.

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

    from mpies.envs.atari import AtariBlocks, AtariRam

    gymnasium.register_envs(ale_py)
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    _require(
        type(repeat_action_probability) in (int, float) and 0 <= repeat_action_probability < 1,
        *(environment_id, "repeat_action_probability", "a number from 0 to less than 1, such as 0.25"),
        repeat_action_probability,
    )
    # Without sticky actions the emulator skips the frames itself, which is faster.
    frames, skipped = (frame_skip, 1) if repeat_action_probability else (1, frame_skip)
    seeded: dict[str, Any] = {"disable_env_checker": True, "frameskip": skipped, "repeat_action_probability": 0.0}
    if blocks is None and rows is not None:
        raise EnvironmentProblem(f"{environment_id}: kwargs.rows is for kwargs.blocks alone; leave it out")
    if blocks is None and kwargs.get("obs_type") == "ram":
        bare = gymnasium.make(environment_id, **seeded, **kwargs)
        environment: gymnasium.Env[Any, Any] = AtariRam(bare, frames, repeat_action_probability)
    elif blocks is None:
        kwargs["repeat_action_probability"] = repeat_action_probability
        bare = gymnasium.make(environment_id, disable_env_checker=True, frameskip=1, **kwargs)
        environment = FrameStackObservation(AtariPreprocessing(bare, frame_skip=frame_skip), 4)
    else:
        wanted = f"a whole number from 1 to {LARGEST_BLOCK}, the height and width of a block in pixels"
        _require(type(blocks) is int and 1 <= blocks <= LARGEST_BLOCK, environment_id, "blocks", wanted, blocks)
        wanted = (
            f"the first row of pixels that counts and the first one after them, such as [34, 194] of {HEIGHT}, with "
            "room for a block between them"
        )
        is_right = rows is None or (
            _has_whole_numbers(rows) and len(rows) == 2 and 0 <= rows[0] <= rows[1] - blocks <= HEIGHT - blocks
        )
        _require(is_right, environment_id, "rows", wanted, rows)
        bare = gymnasium.make(environment_id, **seeded, obs_type="grayscale", **kwargs)
        environment = AtariBlocks(bare, blocks, rows, frames, repeat_action_probability)
    if actions is not None:
        count = int(environment.action_space.n)  # type: ignore[attr-defined]
        is_right = _has_whole_numbers(actions) and len(actions) > 0 and all(each in range(count) for each in actions)
        wanted = f"a list of the game's actions, 0 to {count - 1}, such as [0, 2, 3]"
        _require(is_right, environment_id, "actions", wanted, actions)
        space = gymnasium.spaces.Discrete(len(actions))
        environment = TransformAction(environment, lambda action: actions[int(action)], space)
    return TimeLimit(environment, max_steps or ATARI_STEPS)


def _require(is_right: bool, environment_id: str, name: str, wanted: str, value: Any) -> None:
    """Raise EnvironmentProblem where the value of a keyword argument is not right.  wanted: what it must be."""
    if not is_right:
        raise EnvironmentProblem(f"{environment_id}: kwargs.{name} must be {wanted}, but is {value!r}")


def _has_whole_numbers(value: Any) -> bool:
    """Whether a value is a list or tuple of nothing but whole numbers."""
    return isinstance(value, (list, tuple)) and all(type(number) is int for number in value)
