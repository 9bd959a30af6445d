"""What a config asks to be solved: a world, a policy for it, and a player that brings them together."""

import numpy as np

from envs import change_task, make_function_world, make_world
from mpies.config import ConfigError
from mpies.policies import make_policy
from mpies.rollouts import EpisodePlayer, FunctionPlayer
from solvers.streams import EPISODES, EVALUATION, STATISTICS, TASK, stream


def make_task_world(section, rebuild=None):
    """The World of an EnvironmentSection that is no function.  rebuild: in place of the section's own."""
    world = make_world(
        section.id,
        section.backend,
        section.max_steps,
        section.rebuild_each_episode if rebuild is None else rebuild,
        section.episode_timeout,
        section.rebuild_every,
        section.frame_skip,
        **section.kwargs,
    )
    changes = section.hide, section.action_repeat, section.ignored_rewards, section.reward_shift
    return change_task(world, section.id, *changes)


class Task:
    """The task of a Config.  dimension: d, the number of parameters.

    observation_size is 0 where there is nothing to normalise.  behaviour_size: of how an episode ended.
    Raises EnvironmentProblem when the environment cannot be built, and ConfigError when the solver cannot have
    so many parameters.
    """

    def __init__(self, config):
        self.config = config
        self._build(config)
        refusal = config.solver.refusal(self.dimension)
        if refusal:
            raise ConfigError(refusal)
        if config.solver.noise_rows(self.dimension) and config.noise.size < self.dimension:
            raise ConfigError(
                f"noise.size must be at least {self.dimension}, the parameters of one member, "
                f"but is {config.noise.size}; leave it out for {type(config.noise)().size}"
            )

    def _build(self, config):
        section = config.environment
        self.observation_size = 0
        if section.function is not None:
            offset = section.shift * stream(config.seed, TASK).standard_normal(section.dimension)
            self.world = make_function_world(section.function, section.dimension, offset)
            self.policy = None
            self.dimension = section.dimension
            self.behaviour_size = self.world.behaviour_size
            self.player = FunctionPlayer(self.world)
            return
        self.world = make_task_world(section)
        self.policy = make_policy(config.policy, self.world.interface)
        self.dimension = self.policy.size
        self.behaviour_size = self.world.interface.observation_size
        timeout = None if self.world.timeout else section.episode_timeout
        signs = "sign" in getattr(config.solver, "fitness", "")  # few solvers ask, and it costs time at every step
        self.player = EpisodePlayer(self.world, self.policy, config.policy.observation_clip, timeout, signs)
        if config.policy.normalize_observations:
            self.observation_size = self.world.interface.observation_size

    def initial_mean(self):
        """First parameters (d,) float32, a function of the run's seed."""
        if self.policy is None:
            return np.zeros(self.dimension, np.float32)
        return self.policy.initial(self.config.seed)

    def training_seeds(self, generation, batch):
        """Environment seeds (members * episodes,) of a batch of members; antithetic pairs share theirs."""
        solver = self.config.solver
        random = stream(self.config.seed, EPISODES, generation, batch)
        groups = solver.groups(self.dimension)
        if self.config.environment.seeds == "generation":
            groups = np.zeros_like(groups)
        return random.integers(2**31, size=(groups[-1] + 1, solver.episodes))[groups].reshape(-1)

    def training_samples(self, generation, batch):
        """Which rollouts (members * episodes,) bool of a batch feed the observation statistics."""
        rollouts = self.config.solver.members(self.dimension) * self.config.solver.episodes
        if not self.observation_size:
            return np.zeros(rollouts, bool)
        random = stream(self.config.seed, STATISTICS, generation, batch)
        return random.random(rollouts) < self.config.policy.statistics_fraction

    def evaluation_seeds(self, generation, attempt, episodes, seed=None):
        """Environment seeds (episodes,) of held-out episodes, drawn apart from those of training."""
        seed = self.config.seed if seed is None else seed
        return stream(seed, EVALUATION, generation, attempt).integers(2**31, size=episodes)
