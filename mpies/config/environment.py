"""The section `environment` of a config: the task, as an environment of a simulator or as a function of parameters."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mpies.core.options import Arguments, Count, Fraction, Options, Positive, Real, RealOrAuto, Text, WholeNumber
from mpies.envs import FUNCTIONS
from mpies.envs.custom_env import is_custom

# Arguments that mpies itself passes to the constructors of gymnasium and EnvPool.
_NOT_KWARGS = {
    *("id", "environment_id", "task_id", "backend", "max_steps", "max_episode_steps", "rebuild", "seed"),
    *("rebuild_every", "frame_skip", "timeout", "num_envs", "batch_size", "num_threads", "env_type"),
    *("instances", "disable_env_checker"),
}


class AdaptiveSection(Options):
    """A limit on the length of training episodes that grows as they reach it (OpenAI's episode_cutoff_mode)."""

    start: Count = Field(description="the first limit, in steps")
    threshold: Fraction = Field(
        0.5,
        description="the limit grows when this share of members reaches it in all their episodes; 0: it grows in every "
        "generation, and by the third power of the ratio when all reach it",
    )
    ratio: Annotated[Real, Field(gt=1)] = Field(1.5, description="factor by which the limit grows")


class EnvironmentSection(Options):
    """The environment that the policy acts in."""

    id: Text = Field(
        description="a gymnasium id such as LunarLander-v3, one of pybullet's such as AntBulletEnv-v0, function:NAME "
        "for a test function, or your own: path/to/file.py:name or module:callable"
    )
    backend: Literal["auto", "mujoco", "envpool", "gymnasium", "gym"] = Field(
        "auto",
        description="auto chooses mujoco for the robots of gymnasium, else EnvPool if it has the id and no kwargs are "
        "given, else gymnasium, else gym, of what is installed; a run keeps what it began with",
    )
    kwargs: Arguments = Field({}, description="keyword arguments of the environment's constructor")
    rebuild: Literal["auto", "always", "never"] = Field(
        "auto",
        description="whether each episode gets a new environment object; auto does so if a short probe finds state "
        "that one episode leaves to the next; not for EnvPool",
    )
    rebuild_every: Count | None = Field(
        1000,
        description="number of episodes after which the environment object is replaced, in case it leaks memory; not "
        "for EnvPool",
    )
    episode_timeout: Positive | None = Field(
        None, description="seconds of wall time after which an episode counts as failed; default never"
    )
    instances: Count | None = Field(
        None,
        description="maximum number of environment objects at a time, such as 1 if each needs a licence; default no "
        "limit; not for EnvPool",
    )
    instances_per: Literal["rank", "node"] = Field(
        "rank",
        description="whether instances limits the objects of each rank or of each node; with node, only that many of "
        "its ranks play",
    )
    max_steps: Count | None = Field(
        None,
        description="time limit of an episode, in steps of the environment; default the environment's; one of your own "
        "has none",
    )
    frame_skip: Count | None = Field(
        None, description="frames per step, for Atari and others that have this setting; default the environment's"
    )
    action_repeat: Count = Field(
        1, description="steps of the environment for which an action is repeated; their rewards are summed"
    )
    observations: list[Text] = Field(
        [], description="parts of an observation that is a Dict, such as [state], that the policy sees; [] shows all"
    )
    hide: list[WholeNumber] = Field(
        [], description="indices of the numbers of an observation that are hidden from the policy"
    )
    ignored_rewards: list[Real] = Field(
        [], description="in training, rewards of exactly these values count as 0, such as [-100] of BipedalWalker"
    )
    reward_shift: RealOrAuto = Field(
        0.0,
        description="in training, this number is subtracted from the reward of each step, for instance a bonus for "
        "surviving; auto: 0.95 times the mean reward of a step in the first generation, if all returns are above 0",
    )
    behaviour: list[Text] = Field(
        [],
        description="for solvers that search for novelty: names in the environment's info, such as [x_position], "
        "whose last values describe how an episode ended; [] uses the last observation",
    )
    adaptive: AdaptiveSection | None = Field(
        None, description="a limit on the length of training episodes that grows during the run"
    )
    seeds: Literal["pair", "generation"] = Field(
        "pair",
        description="which members share the seeds of their episodes: an antithetic pair, or a whole generation, which "
        "builds fewer MuJoCo environments and so saves time if episodes are short",
    )
    dimension: Annotated[Count, Field(ge=2)] | None = Field(
        None, description="number of parameters of a function: function:NAME, or your own"
    )
    shift: Real = Field(
        0.0,
        description="for functions: the optimum is moved by this number times normal random numbers, drawn from the "
        "run's seed",
    )

    @property
    def function(self) -> str | None:
        """The name of the function of parameters that takes the place of an environment, or None."""
        if self.id.startswith("function:"):
            return self.id.removeprefix("function:")
        return self.id if self.dimension is not None else None

    @model_validator(mode="after")
    def _keys_fit(self) -> Self:
        for name in sorted(_NOT_KWARGS & self.kwargs.keys()):
            cure = f"use environment.{name}" if name in type(self).model_fields else "mpies sets it itself"
            cure = "use environment.max_steps" if "max" in name else cure
            raise ValueError(f"kwargs.{name} is not for kwargs: {cure}; remove it")
        if self.instances_per != "rank" and self.instances is None:
            raise ValueError("instances_per counts instances, which is missing: add instances: 1, or remove it")
        # A resolved config names every key, so a key at its default counts as absent.
        given = [name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default]
        if not self.id.startswith("function:") and not is_custom(self.id):
            for name in ("dimension", "shift"):
                if name in given:
                    raise ValueError(f"{name} is for functions only; remove it, or use id: function:NAME")
            return self
        if self.function is None:
            if "shift" in given:
                raise ValueError("shift is for functions only; remove it, or give the function's dimension")
            return self
        if self.id.startswith("function:") and self.function not in FUNCTIONS:
            raise ValueError(
                f"id must name a test function, but is {self.id!r}; use one of function:{', function:'.join(FUNCTIONS)}"
            )
        if self.dimension is None:
            raise ValueError(f"dimension is missing: how many parameters {self.id} has, for instance dimension: 100")
        for name in given:
            if name not in ("id", "dimension", "shift", "seeds"):
                raise ValueError(f"{name} is not for functions; remove it")
        return self
