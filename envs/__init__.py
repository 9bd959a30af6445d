"""The worlds: adapters that turn environments into batches of seeded episodes.  No MPI, no solver."""

from envs.base import EnvironmentProblem
from envs.functions import FUNCTIONS, FunctionWorld

BACKENDS = ("auto", "envpool", "gymnasium")


def make_world(environment_id, backend="auto", max_steps=None, rebuild=None, timeout=None, **kwargs):
    """The World of an environment id.

    environment_id: a gymnasium id; `envpool:ID` or `gymnasium:ID` name the backend in the id.
    backend: auto takes EnvPool where it is installed and has the id, and gymnasium else.
    rebuild: whether gymnasium builds a new object for each episode; None where it is known to be needed.
    timeout: seconds that an episode of gymnasium's may take before it is broken off.
    Raises EnvironmentProblem with a line that says what is wrong and how to mend it.
    """
    prefix, colon, rest = environment_id.partition(":")
    if colon and prefix in BACKENDS:
        backend, environment_id = prefix, rest
    if backend == "auto":
        from envs.envpool_world import offers

        backend = "envpool" if not kwargs and offers(environment_id) else "gymnasium"
    if backend == "envpool":
        from envs.envpool_world import EnvPoolWorld

        return EnvPoolWorld(environment_id, max_steps, **kwargs)
    from envs.gymnasium_world import GymnasiumWorld

    return GymnasiumWorld(environment_id, max_steps, rebuild, timeout, **kwargs)


__all__ = ["BACKENDS", "FUNCTIONS", "EnvironmentProblem", "FunctionWorld", "make_world"]
