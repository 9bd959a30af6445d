"""What a config asks to be solved: a world, a policy for it, and a player that brings them together."""

import numpy as np

from envs import change_task, make_function_world, make_world
from envs.base import Discrete
from mpies.config import ConfigError
from mpies.policies import PolicyProblem, make_policy
from mpies.rollouts import EpisodePlayer, FunctionPlayer
from solvers.directions import Directions
from solvers.streams import ACTIONS, EPISODES, EVALUATION, REFERENCE, STATISTICS, TASK, stream


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


def draw_reference(world, count, random):
    """Observations (count, o) uint8 that random actions lead to: of several episodes, every so many steps."""
    action, apart, frames = world.interface.action, 8, []
    while len(frames) < count:
        batch = world.open(random.integers(2**31, size=8).tolist())
        places, observations = np.arange(8, dtype=np.int32), batch.observations
        for step in range(100 * apart):
            if step % apart == 0:
                frames += list(observations.astype(np.uint8))
            if isinstance(action, Discrete):
                actions = random.integers(action.count, size=len(places)).astype(np.int32)
            else:
                actions = random.uniform(action.low, action.high, (len(places), len(action.low))).astype(np.float32)
            batch.send(places, actions)
            observations, _, over = batch.receive()
            places, observations = places[~over], observations[~over]
            if not len(places) or len(frames) >= count:
                break
        batch.close()
    return np.stack(frames[:count])


class Task:
    """The task of a Config.  dimension: d, the number of parameters.

    observation_size is 0 where there is nothing to normalise.  behaviour_size: of how an episode ended.
    directions: how members' directions are cut from the noise table.
    constants: what a saved policy has besides its parameters; None for what belongs to the run's seed.
    Raises EnvironmentProblem when the environment cannot be built, and ConfigError when the policy does not fit it or
    the solver cannot have so many parameters.
    """

    def __init__(self, config, constants=None):
        self.config = config
        self._build(config, constants)
        refusal = config.solver.refusal(self.dimension)
        if refusal:
            raise ConfigError(refusal)
        self.directions = Directions(self.dimension)
        if config.noise.rank:
            self.directions = Directions(self.dimension, self.policy.matrices, config.noise.rank)
        if config.solver.noise_rows(self.dimension) and config.noise.size < self.directions.length:
            raise ConfigError(
                f"noise.size must be at least {self.directions.length}, the noise of one member, "
                f"but is {config.noise.size}; leave it out for {type(config.noise)().size}"
            )

    def _build(self, config, constants):
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
        if config.policy.kind == "conv" and not constants:
            random = stream(config.seed, REFERENCE)
            constants = {"reference": draw_reference(self.world, config.policy.reference, random)}
        try:
            self.policy = make_policy(config.policy, self.world.interface, constants)
        except PolicyProblem as error:
            raise ConfigError(str(error)) from None
        self.dimension = self.policy.size
        self.behaviour_size = self.world.interface.observation_size
        if section.behaviour:
            self.behaviour_size = self.world.measure_behaviour(section.behaviour)
        timeout = None if self.world.timeout else section.episode_timeout
        signs = "sign" in getattr(config.solver, "fitness", "")  # few solvers ask, and it costs time at every step
        self.player = EpisodePlayer(self.world, self.policy, config.policy.observation_clip, timeout, signs)
        if config.policy.normalize_observations:
            self.observation_size = self.world.interface.observation_size

    def first_policy(self):
        """Names to arrays that a run begins with: parameters (d,) float32 and perhaps observation statistics.

        Raises StoreError or ConfigError when they are to be those of a file that does not fit.
        """
        if self.policy is None:
            return {"parameters": np.zeros(self.dimension, np.float32)}
        if self.config.policy.init_from is None:
            return {"parameters": self.policy.initial(self.config.seed)}
        from mpies.evaluate import load_policy

        path = self.config.policy.init_from
        saved, arrays, _ = load_policy(path)
        wrong = None
        if saved.policy.kind != self.config.policy.kind:
            wrong = f"kind {saved.policy.kind}, but this policy is of kind {self.config.policy.kind}"
        elif arrays["parameters"].size != self.dimension:
            wrong = f"{arrays['parameters'].size:,} parameters, but this policy has {self.dimension:,}"
        elif arrays["normalization"].shape[1] != self.observation_size:
            wrong = (
                f"statistics of {arrays['normalization'].shape[1]} observations, but {self.observation_size} are wanted"
            )
        if wrong:
            raise ConfigError(f"policy.init_from: {path} has {wrong}; take the same policy and environment")
        return arrays

    def training_seeds(self, generation, batch):
        """Environment seeds (members * episodes,) of a batch of members; antithetic pairs share theirs."""
        solver = self.config.solver
        random = stream(self.config.seed, EPISODES, generation, batch)
        groups = solver.groups(self.dimension)
        if self.config.environment.seeds == "generation":
            groups = np.zeros_like(groups)
        return random.integers(2**31, size=(groups[-1] + 1, solver.episodes))[groups].reshape(-1)

    def action_seeds(self, generation, batch):
        """Seeds (members * episodes,) of what a batch's policies leave to chance; None where that is nothing."""
        if self.policy is None or not self.policy.head.is_random:
            return None
        rollouts = self.config.solver.members(self.dimension) * self.config.solver.episodes
        return stream(self.config.seed, ACTIONS, generation, batch).integers(2**63, size=rollouts)

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
