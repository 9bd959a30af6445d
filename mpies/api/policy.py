"""A trained policy in Python: from observations of the environment to its actions."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.api.arguments import read_optional_number, read_path, read_whole_number
from mpies.api.batch_actor import BatchActor, State
from mpies.config.loading import resolved, validate_saved
from mpies.config.schema import Config
from mpies.config.trust import trusting
from mpies.core.errors import ConfigError, RunError, UserError
from mpies.core.paths import absolute
from mpies.core.text import describe_value
from mpies.policies import make_policy
from mpies.policies.export import ENDINGS, export_policy, require_exportable
from mpies.report.evaluate import play_held_out, show_policy
from mpies.runs.directory import refuse_run_file
from mpies.runs.files import write_atomically, writing
from mpies.runs.formats.policy_file import PolicyFile, find_policy, load_policy
from mpies.runs.snapshot import Evaluation

log = logging.getLogger(__name__)


def _copy_state(state: object, initial: State, count: int) -> State:
    """A copy of a state of `count` episodes, which begin with `initial`.  Raises UserError where it is another one."""
    given = [*state] if isinstance(state, tuple | list | np.ndarray) else []
    found = [np.shape(values) for values in given]
    if () in found or [shape[1:] for shape in found] != [one.shape for one in initial]:
        raise UserError(
            f"state must be what this policy's predict has returned before, or None, but is {describe_value(state)}"
        )
    if any(shape[0] != count for shape in found):
        raise UserError(
            f"the policy keeps the state of {found[0][0]} episodes, but was given {count} observations; "
            "begin new episodes with reset(), or without a state"
        )
    return tuple(np.array(values, one.dtype) for values, one in zip(given, initial, strict=True))


class Policy:
    """A policy with its config and observation statistics.

    `policy(observation)` takes an observation as the environment returns it, or a batch of n with a leading axis, and
    returns the action as the environment takes it, or n of them.  What a recurrent policy remembers of an episode is
    held by the object; call `reset()` when an episode begins.

    config: of the run.  generation: after which it was saved.  parameters: (d,) float32.

    >>> policy = mpies.Policy.load("runs/cartpole")                                              # doctest: +SKIP
    >>> action = policy(observation)                                                             # doctest: +SKIP
    """

    def __init__(self, saved: PolicyFile) -> None:
        self._saved = saved
        self.config: Config = saved.config
        self.generation: int = saved.generation
        self._state: State | None = None
        self._actor: BatchActor | None = None
        self._random = np.random.default_rng([self.config.seed, self.generation])

    @classmethod
    def load(cls, path: str | Path, trust: bool = False) -> "Policy":
        """The policy of a file such as best.h5, the best one of a run directory, or the trained one of a recipe.

        trust: whether code that its config names may run, also where it was not trained here (docs/policies.md).
        Raises RunError or ConfigError.
        """
        try:
            with trusting(trust):
                return cls(load_policy(absolute(find_policy(read_path("the path of a policy", path, RunError)))))
        except OSError as error:  # such as another user's folder
            raise RunError(f"{path}: cannot be read ({error.strerror}); give another path") from None

    @property
    def parameters(self) -> npt.NDArray[np.float32]:
        """A copy of the parameters (d,); of a test function, the point."""
        return np.array(self._saved.arrays["parameters"])

    def __getstate__(self) -> dict[str, Any]:
        """What copies, and other processes, get: the config as plain values, and all else but the compiled actor.

        Pickle would not find the class of a config whose solver is in a file or of Nevergrad's.
        """
        saved = self._saved
        parts = {"config": resolved(self.config), "_saved": (saved.path, saved.arrays, saved.attributes)}
        parts["_refusal"] = self.config.refusal
        return {**self.__dict__, **parts, "_actor": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        path, arrays, attributes = state["_saved"]
        with trusting():  # whoever loads a pickle runs what it names
            config = validate_saved(state["config"], None, str(path))
        config.refuse_code(state.pop("_refusal", ""))
        self.__dict__.update(state, config=config, _saved=PolicyFile(path, config, arrays, attributes))

    def __repr__(self) -> str:
        kind, size = self.config.policy.kind, self._saved.arrays["parameters"].size
        return f"Policy({self.config.environment.id}, {kind}, {size:,} parameters, generation {self.generation})"

    def __call__(self, observation: Any) -> Any:
        """The action of an observation, or those of a batch (n, ...), each in its own episode.

        An action is an int where actions are discrete, else an array of the shape and dtype of the action space; those
        of a batch are an array with a leading axis n.  Raises UserError for an observation of another shape, and where
        the policy remembers episodes and n differs from the last call.
        """
        action, self._state = self.predict(observation, self._state)
        return action

    def reset(self, seed: int | None = None) -> None:
        """Begin new episodes.  seed: of what `predict` draws; None goes on with the random numbers.

        Raises UserError for a seed that is no whole number, or negative.
        """
        if seed is not None:
            self._random = np.random.default_rng(read_whole_number("seed", seed, 0))
        self._state = None

    def predict(
        self,
        observation: Any,
        state: State | None = None,
        episode_start: npt.ArrayLike | None = None,
        deterministic: bool = True,
    ) -> tuple[Any, State | None]:
        """The action of an observation or of a batch, and the state for the next call, as in Stable-Baselines3.

        state: what the last call returned; None begins new episodes.  The object's own state stays as it is.
        episode_start: (n,) whether each episode begins with this observation.
        deterministic: whether the most likely action is taken; False draws, as training did, where policy.sampling or
        policy.action_noise says so.
        Returns the action and the state, which is None where the policy remembers nothing.
        Raises UserError as __call__ does.
        """
        actor = self._bind()
        observations, is_single = actor.read(observation)
        count = len(observations)
        if state is None or not actor.initial:
            state = tuple(np.repeat(values[None], count, axis=0) for values in actor.initial)
        else:
            state = _copy_state(state, actor.initial, count)
        if episode_start is not None:
            starts = np.asarray(episode_start, bool)
            if starts.shape not in ((), (1,), (count,)):
                raise UserError(
                    f"episode_start must have shape ({count},), one for each observation, but has {starts.shape}"
                )
            begins = np.broadcast_to(starts, count)
            for values, initial in zip(state, actor.initial, strict=True):
                values[begins] = initial
        seeds = None
        if not deterministic and actor.is_random:
            seeds = self._random.integers(2**63, size=count)
        actions = actor.act(observations, state, seeds)
        return actor.write(actions, is_single), state or None

    def evaluate(self, episodes: int = 100, seed: int | None = None, deterministic: bool = True) -> Evaluation:
        """Play held-out episodes, the same as `mpies evaluate` does.

        seed: of the episodes; None for the run's.  deterministic: as for `predict`, but False is refused with
        ConfigError where training drew nothing.  Returns mean, interval (half of the 95 % confidence interval),
        deviation, returns and lengths (episodes,) and failures; failed episodes count in the last only.  The interval
        of a single episode is NaN.
        Raises UserError where all of them fail, and for numbers that are wrong.
        """
        episodes = read_whole_number("episodes", episodes, 1)
        seed = read_optional_number("seed", seed, 0)
        records, failures = play_held_out(self._saved, episodes, seed, deterministic)
        evaluation = Evaluation.of(records["total"], records["steps"])
        if failures:
            failed = f"{len(failures)} of {episodes} held-out episodes failed"
            reason = f"{self.config.environment.id}: {failed} ({min(failures.values())})"
            if not len(evaluation.returns):
                raise UserError(reason)
            log.warning("%s", reason)
        return evaluation

    def play(
        self, video: str | Path | None = None, episodes: int = 1, seed: int | None = None
    ) -> npt.NDArray[np.float64]:
        """Show held-out episodes, as `mpies play` does.  Returns their returns (episodes,).

        video: an .mp4 or .gif to record to; None for a window.  seed: as for `evaluate`.
        Raises UserError where the environment draws no pictures, and ConfigError where a package is not installed.
        """
        file = None if video is None else read_path("video", video)
        count, seed = read_whole_number("episodes", episodes, 1), read_optional_number("seed", seed, 0)
        return show_policy(self._saved, count, seed, file)

    def save(self, path: str | Path) -> None:
        """Write a policy file, for `Policy.load`, `mpies evaluate`, `mpies export` and policy.init_from.

        Raises RunError where it cannot be written, and ConfigError for a file of a run's own, such as its best.h5.
        """
        path = read_path("path", path, RunError)
        with writing(path, RunError):
            refuse_run_file(path)
            self._saved.save(absolute(path))

    def export(self, path: str | Path) -> str:
        """Write it for other programs, in the format of the path's ending: .npz, .py or .onnx (docs/pictures.md).

        Returns a description of what was written.  Raises ConfigError for another ending, for a kind of policy that
        cannot be exported, and where the file cannot be written; UserError for a function.
        """
        path = read_path("path", path)
        if path.suffix not in ENDINGS:
            raise ConfigError(f"{path}: an export must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
        size, section = self._saved.arrays["parameters"].size, self.config.environment
        played_by = "" if section.backend == "auto" else f" of {section.backend}"
        about = f"{section.id}{played_by}, generation {self.generation}, {size} parameters"
        require_exportable(self.config.policy.kind)
        interface = None if section.function is not None else self._saved.interface
        policy = make_policy(self.config.policy, interface, self._saved.constants) if interface else self._bind().policy
        self._saved.require_size(policy)
        content = export_policy(policy, self._saved.arrays, section.hide, about, path.suffix)
        with writing(path):
            write_atomically(path, content)
        return about

    def _bind(self) -> BatchActor:
        """What acts with it, made when it is first needed."""
        self._actor = self._actor or BatchActor(self._saved)
        return self._actor
