"""The worlds: adapters that turn environments into batches of seeded episodes.  No MPI, no solver."""

import functools

from envs.base import EnvironmentProblem
from envs.functions import FUNCTIONS, FunctionWorld, OwnFunctionWorld
from envs.tasks import change_task

BACKENDS = ("auto", "envpool", "gymnasium", "gym")

# What the probe found, so that training need not ask again (docs/environments.md); others are probed at the start.
# Those of pybullet's that were not probed at length are with what they are made of: rebuilding is never wrong.
REMEMBERS = {
    *("BipedalWalker-v3", "BipedalWalkerHardcore-v3"),
    *("AntBulletEnv-v0", "HopperBulletEnv-v0", "Walker2DBulletEnv-v0", "HalfCheetahBulletEnv-v0"),
    *("HumanoidBulletEnv-v0", "HumanoidFlagrunBulletEnv-v0", "HumanoidFlagrunHarderBulletEnv-v0"),
    *("MinitaurBulletDuckEnv-v0", "KukaCamBulletEnv-v0", "KukaDiverseObjectGrasping-v0", "RacecarZedBulletEnv-v0"),
    *("HumanoidDeepMimicBackflipBulletEnv-v1", "HumanoidDeepMimicWalkBulletEnv-v1"),
}
FORGETS = {
    *("CartPole-v1", "Pendulum-v1", "LunarLander-v3", "LunarLanderContinuous-v3", "CartPoleSwingUp-v0", "LQR-v0"),
    *("HalfCheetah-v5", "Hopper-v5", "Swimmer-v5", "Walker2d-v5", "Humanoid-v5"),
    *("MinitaurBulletEnv-v0", "KukaBulletEnv-v0", "RacecarBulletEnv-v0", "CartPoleBulletEnv-v1"),
    "InvertedPendulumSwingupBulletEnv-v0",
}

# They all use one simulator, pybullet's first, and disturb each other.
ALONE = {"KukaBulletEnv-v0", "KukaCamBulletEnv-v0", "KukaDiverseObjectGrasping-v0"}


def make_world(
    environment_id,
    backend="auto",
    max_steps=None,
    rebuild=None,
    timeout=None,
    rebuild_every=None,
    frame_skip=None,
    **kwargs,
):
    """The World of an environment id.

    environment_id: a gymnasium id, one that pybullet registers with gym, or the user's own path/to/file.py:name or
    module:callable; `envpool:ID`, `gymnasium:ID` and `gym:ID` name the backend in the id.
    backend: auto takes EnvPool where it is installed and has the id, then gymnasium, then gym.
    rebuild, rebuild_every, timeout: as for GymnasiumWorld.  frame_skip: frames that an action lasts.
    Raises EnvironmentProblem with a line that says what is wrong and how to mend it.
    """
    from envs import own

    prefix, colon, rest = environment_id.partition(":")
    if colon and prefix in BACKENDS:
        backend, environment_id = prefix, rest
    is_own = own.is_own(environment_id)
    if backend == "auto" and not is_own:
        from envs.envpool_world import offers

        backend = "envpool" if not kwargs and offers(environment_id) else "auto"
    if frame_skip is not None:
        kwargs["frame_skip"] = frame_skip
    if backend == "envpool":
        from envs.envpool_world import EnvPoolWorld

        return EnvPoolWorld(environment_id, max_steps, **kwargs)
    from envs import gym_world, gymnasium_world

    if is_own:
        backend, make = "your own", own.make
    elif backend == "gym" or (
        backend == "auto" and not gymnasium_world.offers(environment_id) and gym_world.offers(environment_id)
    ):
        backend, make = "gym", gym_world.make
    else:
        backend, make = "gymnasium", gymnasium_world.make
    build = functools.partial(make, environment_id, max_steps, **kwargs)
    if rebuild is None and environment_id in REMEMBERS | FORGETS:
        rebuild = environment_id in REMEMBERS
    alone = environment_id in ALONE
    return gymnasium_world.GymnasiumWorld(environment_id, build, rebuild, rebuild_every, timeout, backend, alone)


def make_function_world(name, dimension, offset):
    """The FunctionWorld of a key of FUNCTIONS, or of the user's own path/to/file.py:name or module:callable."""
    from envs import own

    if name in FUNCTIONS:
        return FunctionWorld(name, dimension, offset)
    return OwnFunctionWorld(name, dimension, offset, own.find(name))


__all__ = [
    "BACKENDS",
    "FUNCTIONS",
    "EnvironmentProblem",
    "FunctionWorld",
    "change_task",
    "make_function_world",
    "make_world",
]
