"""Environments: adapters that turn them into batches of seeded episodes.  They know nothing of MPI or solvers."""

import functools
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.core.errors import EnvironmentProblem
from mpies.core.text import describe_value
from mpies.core.user_files import search_start_folder
from mpies.envs.base import VectorEnv
from mpies.envs.build_errors import explain_build_errors
from mpies.envs.functions import FUNCTIONS, FunctionEnv, negated
from mpies.envs.mujoco_env import MujocoTask
from mpies.envs.spaces import pick_parts
from mpies.envs.tasks import change_task

BACKENDS = ("auto", "mujoco", "envpool", "gymnasium", "gym")

# Whether an episode depends on earlier ones played in the same object, as `mpies probe` measured it
# (docs/environments.md).  Other environments are probed when a rank starts.  Variants of pybullet's environments that
# were not probed at length are listed like what they are made of: a new object for each episode is always right.
CARRY_HISTORY = {
    *("BipedalWalker-v3", "BipedalWalkerHardcore-v3"),
    *("AntBulletEnv-v0", "HopperBulletEnv-v0", "Walker2DBulletEnv-v0", "HalfCheetahBulletEnv-v0"),
    *("HumanoidBulletEnv-v0", "HumanoidFlagrunBulletEnv-v0", "HumanoidFlagrunHarderBulletEnv-v0"),
    *("MinitaurBulletDuckEnv-v0", "KukaCamBulletEnv-v0", "KukaDiverseObjectGrasping-v0", "RacecarZedBulletEnv-v0"),
    *("HumanoidDeepMimicBackflipBulletEnv-v1", "HumanoidDeepMimicWalkBulletEnv-v1"),
}
NO_HISTORY = {
    *("CartPole-v1", "Pendulum-v1", "LunarLander-v3", "LunarLanderContinuous-v3", "CartPoleSwingUp-v0", "LQR-v0"),
    *("HalfCheetah-v5", "Hopper-v5", "Swimmer-v5", "Walker2d-v5", "Humanoid-v5"),
    *("MinitaurBulletEnv-v0", "KukaBulletEnv-v0", "RacecarBulletEnv-v0", "CartPoleBulletEnv-v1"),
    "InvertedPendulumSwingupBulletEnv-v0",
}

# All objects of these in a process share one simulator, pybullet's first, so two episodes would disturb each other.
ONE_AT_A_TIME = {"KukaBulletEnv-v0", "KukaCamBulletEnv-v0", "KukaDiverseObjectGrasping-v0"}


def choose_backend(environment_id: str, kwargs: Mapping[str, Any], had_envpool: bool | None = None) -> str:
    """What the backend auto means here; auto itself where the id names a backend, or an environment of the user's own.

    kwargs: of the environment's constructor; EnvPool does not get any.
    had_envpool: whether EnvPool was installed where a run has begun: auto is what it was there.  None for a new run,
    which mujoco plays first of all.
    """
    from mpies.envs import custom_env

    if custom_env.is_custom(environment_id) or environment_id.partition(":")[0] in BACKENDS:
        return "auto"
    from mpies.envs import envpool_env, mujoco_tasks

    if had_envpool is None and environment_id in mujoco_tasks.TASKS and importlib.util.find_spec("mujoco"):
        return "mujoco"
    if not kwargs and had_envpool is not False and envpool_env.offers(environment_id):
        return "envpool"
    from mpies.envs import gym_env, gymnasium_registry

    is_of_gym = not gymnasium_registry.offers(environment_id) and gym_env.offers(environment_id)
    is_missing = had_envpool and not kwargs and not envpool_env.is_installed()
    if is_missing and not is_of_gym and not environment_id.startswith(("ALE/", *gymnasium_registry.OWN)):
        return "envpool"  # which has nearly all others, and is asked for in one line
    return "gym" if is_of_gym else "gymnasium"


def shows_images(section: Mapping[str, Any]) -> bool:
    """Whether the environment of a config is an Atari game that is played from images, as its id says."""
    from mpies.envs import envpool_env

    name, kwargs = str(section.get("id")), section.get("kwargs")
    is_small = isinstance(kwargs, Mapping) and bool(kwargs.get("blocks") or kwargs.get("obs_type") == "ram")
    is_game = name.endswith("-v5") and section.get("backend") != "gymnasium" and envpool_env.is_atari(name)
    return not is_small and (name.startswith("ALE/") or is_game)


def make_env(
    environment_id: str,
    backend: str = "auto",
    max_steps: int | None = None,
    rebuild: bool | None = None,
    timeout: float | None = None,
    rebuild_every: int | None = None,
    frame_skip: int | None = None,
    instances: int | None = None,
    observations: Sequence[str] = (),
    **kwargs: Any,
) -> VectorEnv:
    """The VectorEnv of an environment id.

    environment_id: of EnvPool or gymnasium, one that pybullet registers with gym, or the user's own
    path/to/file.py:name or module:callable.  `envpool:ID`, `gymnasium:ID` and `gym:ID` name the backend.
    backend: auto takes EnvPool if it has the id and there are no kwargs, else gymnasium, else gym, as in earlier runs.
    max_steps: time limit, in steps; None for the environment's own.
    rebuild, rebuild_every, timeout: as of GymnasiumEnv; EnvPool has no use for them.
    frame_skip: Atari frames for each step; None for the environment's own.
    instances: how many objects of it may exist at a time, as of GymnasiumEnv; not for EnvPool.
    observations: names of the parts of a Dict that are observed; () for all.
    kwargs: for the environment's constructor.
    Raises EnvironmentProblem if there is no such environment or it cannot be used.
    """
    from mpies.envs import custom_env, envpool_env

    prefix, colon, rest = environment_id.partition(":")
    if colon and prefix in BACKENDS:
        backend, environment_id = prefix, rest
    is_custom = custom_env.is_custom(environment_id)
    if not is_custom:
        custom_env.refuse_half_a_name(environment_id)
    if backend == "auto":
        backend = choose_backend(environment_id, kwargs, envpool_env.is_installed())
    if frame_skip is not None:
        kwargs["frame_skip"] = frame_skip
    if backend == "envpool":
        from mpies.envs.envpool_env import EnvPoolEnv

        if instances is not None:
            raise EnvironmentProblem(
                f"environment.instances limits Python objects, but EnvPool runs {environment_id}; "
                "use backend: gymnasium, or leave instances out"
            )
        return EnvPoolEnv(environment_id, max_steps, observations, **kwargs)
    from mpies.envs import gym_env, gymnasium_registry, mujoco_tasks
    from mpies.envs.gymnasium_env import GymnasiumEnv

    factory: Any = custom_env.find(environment_id) if is_custom else None
    if backend == "mujoco" and (factory := mujoco_tasks.TASKS.get(environment_id)) is None:
        raise EnvironmentProblem(f"{environment_id} is not one of mujoco's: {', '.join(mujoco_tasks.TASKS)}")
    if (make_batches := getattr(factory, "make_vector_env", None)) is not None:
        with explain_build_errors(environment_id):
            env = make_batches(environment_id, max_steps, **kwargs)
        if not isinstance(env, VectorEnv):
            found = f"make_vector_env must return a mpies.envs.VectorEnv, but returns {describe_value(env)}"
            raise EnvironmentProblem(f"{environment_id}: {found}")
        if observations:
            pick_parts(environment_id, env.interface.observation_space, observations)
        return env
    if is_custom:
        folder = custom_env.folder_of(environment_id)
        backend, make = "your own", functools.partial(custom_env.make, environment_id, factory, folder)
    elif backend == "gym":
        backend, make = "gym", functools.partial(gym_env.make, environment_id)
    else:
        if ":" in environment_id:  # MODULE:ID, which gymnasium imports
            search_start_folder()
        backend, make = "gymnasium", functools.partial(gymnasium_registry.make, environment_id)
    build = functools.partial(make, max_steps, **kwargs)
    if observations:
        build = functools.partial(_build_with_parts, environment_id, build, observations)
    is_known = environment_id in CARRY_HISTORY | NO_HISTORY
    if rebuild is None and is_known:
        rebuild = environment_id in CARRY_HISTORY
    if environment_id in ONE_AT_A_TIME:
        instances = 1
    return GymnasiumEnv(environment_id, build, rebuild, rebuild_every, timeout, backend, instances, is_known)


def _build_with_parts(environment_id: str, build: Callable[[], Any], names: Sequence[str]) -> Any:
    """Build an environment of which only these parts are observed."""
    from gymnasium.wrappers import FilterObservation

    environment = build()
    pick_parts(environment_id, environment.observation_space, names)
    return FilterObservation(environment, names)


def make_function_env(name: str, dimension: int, offset: npt.NDArray[np.float64]) -> FunctionEnv:
    """The FunctionEnv of a key of FUNCTIONS, or of the user's own path/to/file.py:name or module:callable.

    dimension: d.  offset: (d,), by which the optimum is moved.
    Raises EnvironmentProblem if there is no such function.
    """
    from mpies.envs import custom_env

    function = negated(name) if name in FUNCTIONS else custom_env.find(name)
    return FunctionEnv(name, dimension, offset, function)


__all__ = [
    "BACKENDS",
    "FUNCTIONS",
    "EnvironmentProblem",
    "FunctionEnv",
    "MujocoTask",
    "VectorEnv",
    "change_task",
    "choose_backend",
    "make_env",
    "make_function_env",
]
