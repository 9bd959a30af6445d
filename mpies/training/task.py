"""What a config asks to be solved: an environment, a policy for it, and a player that brings them together."""

import logging
import shlex
from collections.abc import Mapping
from contextlib import closing, nullcontext

import numpy as np
import numpy.typing as npt

from mpies.comm import Communicator
from mpies.comm.limits import PARAMETERS, SOLVER, require_memory
from mpies.comm.stopwatch import stopwatch
from mpies.config.environment import EnvironmentSection
from mpies.config.schema import Config
from mpies.core.arrays import Array, Int64s
from mpies.core.errors import ConfigError, RunError, UserError
from mpies.core.paths import absolute
from mpies.core.streams import ACTIONS, EPISODES, EVALUATION, HELD_OUT_ACTIONS, REFERENCE, STATISTICS, TASK, stream
from mpies.envs import change_task, make_env, make_function_env
from mpies.envs.base import SEED_BITS, VectorEnv, draw_actions
from mpies.envs.custom_env import is_custom
from mpies.envs.functions import FunctionEnv
from mpies.envs.trial import never_ends, seeds_do_nothing
from mpies.policies import make_policy
from mpies.policies.base import Architecture
from mpies.policies.convolutional import ConvolutionalOptions
from mpies.rollouts.function_player import FunctionPlayer
from mpies.rollouts.player import EpisodePlayer
from mpies.rollouts.queue import Player
from mpies.runs.formats.policy_file import find_policy, load_policy
from mpies.solvers.sampling.directions import Directions
from mpies.solvers.sampling.noise import LINE, count_starts

log = logging.getLogger(__name__)

REUSES = 64  # numbered episodes of an environment with one seed: after so many resets a new one costs less
BATCHES = 16  # how many of these numbers a generation gets if nobody knows how many batches it will have

# Keys of a policy that decide what its parameters mean.
FUNCTION_KEYS = {
    *("hidden", "activation", "bias", "convolutions", "batch_normalization"),
    *("output", "bins", "time_input"),
}

REFERENCE_EPISODES = 8  # that the reference batch of images is taken from at a time
REFERENCE_STEPS = 800  # of each of them at most
REFERENCE_INTERVAL = 8  # steps between two of its images

LOOK = 50  # steps after which episodes with different seeds should differ
LONG = 1000  # steps without an end after which a user is told so

ROLLOUT = 150  # bytes that a rank keeps of a rollout: its seed, its result, and what all ranks send of theirs


def make_task_env(section: EnvironmentSection, rebuild: bool | None = None, node_size: int = 1) -> VectorEnv:
    """The VectorEnv of a section that names no function.

    rebuild: takes the place of the section's own.  node_size: ranks of this node, which share its instances.
    """
    instances = section.instances
    if instances is not None and section.instances_per == "node":
        instances = max(1, instances // node_size)
    env = make_env(
        section.id,
        section.backend,
        section.max_steps,
        {"auto": None, "always": True, "never": False}[section.rebuild] if rebuild is None else rebuild,
        section.episode_timeout,
        section.rebuild_every,
        section.frame_skip,
        instances,
        section.observations,
        **section.kwargs,
    )
    env.clock = stopwatch.now
    shift = 0.0 if section.reward_shift == "auto" else section.reward_shift  # auto: mpies.training.update
    changes = section.hide, section.action_repeat, section.ignored_rewards, shift
    return change_task(env, section.id, *changes)


def find_endless_episodes(section: EnvironmentSection, env: VectorEnv | None = None) -> str:
    """A warning if an environment of the user's own, without a time limit, goes on for LONG steps; '' otherwise.

    env: that of the section, None to build one.
    """
    if section.max_steps is not None or section.function is not None or not is_custom(section.id):
        return ""
    with nullcontext(env) if env else closing(make_task_env(section, rebuild=False)) as played:
        if not never_ends(played, LONG):
            return ""
    return (
        f"{section.id}: an episode with random actions was not over after {LONG:,} steps, and a generation waits for "
        "the end of each; end it in step, or set environment.max_steps"
    )


def draw_reference(env: VectorEnv, count: int, random: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Observations (count, o) that random actions lead to: every eighth step of several episodes.

    They do not depend on how many episodes `env` may open at a time.
    """
    frames: list[npt.NDArray[np.uint8]] = []
    while len(frames) < count:
        seeds = random.integers(2**31, size=REFERENCE_EPISODES).tolist()
        actions = [draw_actions(env.interface.action, len(seeds), random) for _ in range(REFERENCE_STEPS)]
        found: dict[tuple[int, int], npt.NDArray[np.uint8]] = {}  # by step and episode
        for first in range(0, len(seeds), env.largest):
            batch, taken = env.open(seeds[first : first + env.largest]), 0
            places, observations = np.arange(len(batch.observations), dtype=np.int32), batch.observations
            for step, chosen in enumerate(actions):
                if step % REFERENCE_INTERVAL == 0:
                    taken += len(places)
                    for place, row in zip(places.tolist(), observations.astype(np.uint8), strict=True):
                        found[step, first + place] = row
                batch.send(places, chosen[first + places])
                observations, _, over = batch.receive()
                places, observations = places[~over], observations[~over]
                if not len(places) or len(frames) + taken >= count:
                    break
            batch.close()
        frames += [found[key] for key in sorted(found)]
    return np.stack(frames[:count])


def training_needs(config: Config, dimension: int, slots: int) -> dict[str, int]:
    """The least memory that a rank needs to train a config: names of what needs it, to bytes.

    dimension: d, of its task.  slots: episodes that a rank can play side by side.
    """
    solver = config.solver
    members = solver.members(dimension)
    rollouts = members * solver.episodes
    return {
        "noise.size": 4 * config.noise.size if solver.noise_rows(dimension) else 0,
        PARAMETERS: 4 * dimension * (min(slots, rollouts) + 2),
        SOLVER: solver.memory(dimension),
        "solver.population" if solver.episodes < members else "solver.episodes": ROLLOUT * rollouts,
        "evaluation.episodes": 0 if config.environment.function else ROLLOUT * config.evaluation.episodes,
    }


def build_task(config: Config, comm: Communicator) -> "Task":
    """The Task of this rank, which has the memory to train it.  Collective.

    Where a node holds a limited number of environments, its ranks take turns to build theirs.  Those that will not play
    close it again, and the others come last.
    """
    task, error = None, None
    players = config.environment.instances if config.environment.instances_per == "node" else None
    turns = 1
    if players:  # the same number on all nodes, since every rank must call node_barrier as often
        sizes, _ = comm.allgather(np.array([comm.node_size]))
        turns = -(-int(sizes.max()) // players)
    for turn in reversed(range(turns)):
        if players is None or comm.node_rank // players == turn:
            try:
                task = Task(config, node_size=comm.node_size)
                if turn:
                    task.close()
                elif isinstance(task.env, VectorEnv):
                    task.env.try_second()
            except UserError as problem:
                error = problem
        if turns > 1:
            comm.node_barrier()
    if error:
        raise error
    assert task
    require_memory(task.training_needs())
    return task


class Task:
    """The task of a Config.

    dimension: d, the number of parameters.  env: the environment or the function.
    policy: None for a function.  player: plays it on this rank.
    observation_size: o, 0 where observations are not normalised.
    behaviour_size: numbers that say how an episode ended.
    directions: how members' directions are cut from the noise table.

    constants: arrays that a saved policy has besides its parameters; None makes those of the run's seed.
    node_size: ranks of this node.
    Raises EnvironmentProblem when the environment cannot be built, and ConfigError when the policy does not fit it or
    the solver cannot have so many parameters, and RunError where its code is not trusted.
    """

    env: VectorEnv | FunctionEnv
    policy: Architecture | None
    player: Player

    def __init__(self, config: Config, constants: Mapping[str, Array] | None = None, node_size: int = 1) -> None:
        config.require_trust()
        self.config, self.node_size = config, node_size
        self.observation_size = 0
        if config.environment.function is not None:
            self._build_function(config.environment, config.environment.function)
        else:
            self._build_episodes(config, constants)
        refusal = config.solver.refusal(self.dimension)
        if refusal:
            raise ConfigError(refusal)
        self.directions = Directions(self.dimension)
        if config.noise.rank and self.policy:
            self.directions = Directions(self.dimension, tuple(self.policy.matrices), config.noise.rank)
        if config.solver.noise_rows(self.dimension) and config.noise.size < self.directions.length:
            default = type(config.noise)().size
            cure = f"set it to {self._long_enough} or more, or use fewer parameters"
            if default >= self.directions.length:
                cure = f"leave it out for {default}"
            raise ConfigError(
                f"noise.size must be at least {self.directions.length}, the noise of one member, but is "
                f"{config.noise.size}; {cure}"
            )

    def _build_function(self, section: EnvironmentSection, function: str) -> None:
        assert section.dimension is not None
        require_memory({"environment.dimension": 3 * 8 * section.dimension})
        offset = section.shift * stream(self.config.seed, TASK).standard_normal(section.dimension)
        self.env = env = make_function_env(function, section.dimension, offset)
        env.try_out()
        self.policy = None
        self.dimension = section.dimension
        self.behaviour_size = env.behaviour_size
        self.player = FunctionPlayer(env)

    def _build_episodes(self, config: Config, constants: Mapping[str, Array] | None) -> None:
        section = config.environment
        self.env = env = make_task_env(section, node_size=self.node_size)
        env.try_out()
        options = config.policy
        if isinstance(options, ConvolutionalOptions) and options.batch_normalization and not constants:
            require_memory({"policy.reference": options.reference * env.interface.observation_size})
            random = stream(config.seed, REFERENCE)
            constants = {"reference": draw_reference(env, options.reference, random)}
        self.policy = make_policy(config.policy, env.interface, constants)
        self.dimension = self.policy.size
        self.behaviour_size = env.interface.observation_size
        if section.behaviour:
            self.behaviour_size = env.measure_behaviour(section.behaviour)
        timeout = None if env.timeout else section.episode_timeout
        counts_signs = "sign" in str(getattr(config.solver, "fitness", ""))  # few solvers need them, and they cost time
        try:
            self.player = EpisodePlayer(env, self.policy, config.policy.observation_clip, timeout, counts_signs)
        except (MemoryError, ValueError):  # the stack is not in use yet, but no machine would give so much
            require_memory({f"the policy ({self.dimension:,} parameters)": 4 * self.dimension * env.slots})
            raise
        if config.policy.normalize_observations:
            self.observation_size = env.interface.observation_size

    def find_warnings(self) -> list[str]:
        """What is likely to be a mistake in the config or the environment, one line each."""
        found = [self.find_shared_noise(), self.find_unseeded_numbers()]
        if isinstance(self.env, VectorEnv):
            found.append(find_endless_episodes(self.config.environment, self.env))
            found.append(self.find_equal_episodes(self.env))
        return [warning for warning in found if warning]

    def find_unseeded_numbers(self) -> str:
        """A warning if episodes with the same seed were seen to differ; '' otherwise."""
        if not isinstance(self.env, VectorEnv) or not self.env.ignores_seed:
            return ""
        name = self.config.environment.id
        return (
            f"{name}: two episodes with the same seed differ, so the same command leads to other results each time; "
            f"draw all random numbers from the seed that reset gets (mpies probe {shlex.quote(name)} checks it)"
        )

    def find_equal_episodes(self, env: VectorEnv) -> str:
        """A warning if episodes do not depend on their seeds; '' otherwise."""
        if not seeds_do_nothing(env, LOOK):
            return ""
        what = f"different seeds give the same episode, for {LOOK} steps at least"
        return f"{self.config.environment.id}: {what}, so a policy is tried in one situation only"

    def find_shared_noise(self) -> str:
        """A warning if the noise table is too short for members with noise of their own; '' if it is long enough."""
        noise, length = self.config.noise, self.directions.length
        rows = self.config.solver.noise_rows(self.dimension)
        starts = count_starts(noise.size, length)
        if starts >= rows:
            return ""
        places = "one place" if starts == 1 else f"{starts} places"
        return (
            f"members share their noise: it starts in {places} of a table of {noise.size} normals, "
            f"but {rows} different directions are drawn a generation; set noise.size to at least {self._long_enough}"
        )

    @property
    def _long_enough(self) -> int:
        """Normals of a noise table in which as many directions begin as a generation draws."""
        return self.directions.length + LINE * self.config.solver.noise_rows(self.dimension)

    def training_needs(self) -> dict[str, int]:
        """The least memory that a rank needs to train this task: names of what needs it, to bytes."""
        return training_needs(self.config, self.dimension, self.env.slots if isinstance(self.env, VectorEnv) else 1)

    def close(self) -> None:
        """Free what the environment holds on this rank, for instance a licence; a later episode takes it again."""
        self.player.drop()
        if isinstance(self.env, VectorEnv):
            self.env.close()

    def count_players(self, node_size: int) -> int:
        """How many of the `node_size` ranks of a node play: as many as its instances of the environment serve."""
        section = self.config.environment
        if section.instances is None or section.instances_per == "rank":
            return node_size
        return min(section.instances, node_size)

    def first_policy(self) -> dict[str, Array]:
        """Names to arrays that a run begins with: parameters (d,) float32, and observation statistics if known.

        Raises RunError or ConfigError when policy.init_from names a file that does not fit.
        """
        if self.policy is None:
            return {"parameters": np.zeros(self.dimension, np.float32)}
        path = self.config.policy.init_from
        if path is None:
            return {"parameters": self.policy.initial(self.config.seed)}
        try:
            saved = load_policy(absolute(find_policy(path)))
        except RunError as error:
            raise ConfigError(f"policy.init_from: {error}") from None
        parameters, normalization = saved.arrays["parameters"], saved.arrays["normalization"]
        wrong = None
        if saved.config.policy.kind != self.config.policy.kind:
            wrong = f"kind {saved.config.policy.kind}, but this policy is of kind {self.config.policy.kind}"
        elif parameters.size != self.dimension:
            wrong = f"{parameters.size:,} parameters, but this policy has {self.dimension:,}"
        elif normalization.shape[1] != self.observation_size:
            wrong = (
                f"statistics of {normalization.shape[1]} observations, but this policy needs {self.observation_size}"
            )
        theirs, ours = saved.config.policy.model_dump(), self.config.policy.model_dump()
        for key in sorted(FUNCTION_KEYS & theirs.keys() & ours.keys()):
            if theirs[key] != ours[key]:
                wrong = wrong or f"{key} {theirs[key]}, but this policy has {ours[key]}"
        if wrong:
            raise ConfigError(f"policy.init_from: {path} has {wrong}; use the same policy and environment")
        images, own_images = saved.constants.get("reference"), self.policy.constants.get("reference")
        if images is not None and own_images is not None and not np.array_equal(images, own_images):
            log.warning(
                "policy.init_from: %s has other reference images than this run, which draws its own; the policy acts "
                "differently at first (seed: %d gives the same images in the same environment)",
                path,
                saved.config.seed,
            )
        return saved.arrays

    def training_seeds(self, generation: int, batch: int) -> Int64s:
        """Environment seeds (members * episodes,) of a batch of members; antithetic pairs share theirs.

        With environment.seeds: generation, all members share theirs.  If the environment then numbers its episodes
        (VectorEnv.numbers_episodes), up to REUSES batches in a row have the seeds of the first of them, and the next
        episode number each: a reset costs less than a new environment.  Int64s and numbers are functions of (run seed,
        generation, batch).
        """
        solver, number = self.config.solver, 0
        groups = solver.groups(self.dimension)
        if self.config.environment.seeds == "generation":
            groups = np.zeros_like(groups)
            if isinstance(self.env, VectorEnv) and self.env.numbers_episodes:
                batches = 1 if solver.is_complete(self._rollouts, 0) else BATCHES
                generations_later, batches_later = generation % (REUSES // batches), batch % batches
                generation, batch = generation - generations_later, batch - batches_later  # the first with these seeds
                number = generations_later * batches + batches_later + 1
        random = stream(self.config.seed, EPISODES, generation, batch)
        seeds = random.integers(2**31, size=(int(groups.max()) + 1, solver.episodes))[groups].reshape(-1)
        return seeds + (number << SEED_BITS)

    def action_seeds(self, generation: int, batch: int) -> Int64s | None:
        """Int64s (members * episodes,) of what a batch's policies leave to chance; None for deterministic ones."""
        if self.policy is None or not self.policy.head.is_random:
            return None
        return stream(self.config.seed, ACTIONS, generation, batch).integers(2**63, size=self._rollouts)

    def training_samples(self, generation: int, batch: int) -> npt.NDArray[np.bool_]:
        """Which rollouts (members * episodes,) of a batch feed the observation statistics."""
        if not self.observation_size:
            return np.zeros(self._rollouts, bool)
        random = stream(self.config.seed, STATISTICS, generation, batch)
        return random.random(self._rollouts) < self.config.policy.statistics_fraction

    def evaluation_seeds(self, generation: int, attempt: int, episodes: int, seed: int | None = None) -> Int64s:
        """Environment seeds (episodes,) of held-out episodes, from another random stream than those of training."""
        seed = self.config.seed if seed is None else seed
        return stream(seed, EVALUATION, generation, attempt).integers(2**31, size=episodes)

    def held_out_action_seeds(self, generation: int, attempt: int, episodes: int, seed: int | None = None) -> Int64s:
        """Int64s (episodes,) of the actions in held-out episodes, where they are drawn as in training."""
        seed = self.config.seed if seed is None else seed
        return stream(seed, HELD_OUT_ACTIONS, generation, attempt).integers(2**63, size=episodes)

    @property
    def _rollouts(self) -> int:
        """Rollouts of a batch of members."""
        return self.config.solver.members(self.dimension) * self.config.solver.episodes
