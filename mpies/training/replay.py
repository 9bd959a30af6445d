"""Recompute any generation of a run from its first checkpoint and its ledger, and play its members again.

Where an earlier part of the ledger was lost, replays begin at the checkpoint of the generation before its first one.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpies.comm.serial import Serial
from mpies.config.loading import as_yaml, signature_of
from mpies.config.schema import Config
from mpies.core.errors import RunError
from mpies.core.paths import absolute
from mpies.rollouts.batch import RolloutBatch
from mpies.rollouts.queue import play_alone
from mpies.runs.directory import refuse_run_file
from mpies.runs.formats import hdf5, ledger
from mpies.runs.formats.checkpoint import first_checkpoint
from mpies.runs.formats.hdf5 import Arrays
from mpies.runs.formats.policy_file import PolicyFile, find_policy, load_policy, select
from mpies.runs.reader import RunView, is_run, read_run_config
from mpies.training.evaluation.evaluator import training_batch
from mpies.training.evaluation.generation import Part
from mpies.training.learner import Learner, fitting
from mpies.training.task import Task
from mpies.training.update import Updater, make_solver


class Replay:
    """The learner of a run as it was after `generation`; needs no environment.

    generation: None for the one where replays begin.
    config: of the run.  learner: the state.  digest: of the state, as it was recorded.
    Raises RunError when the run lacks what is needed.
    """

    def __init__(self, path: str | Path, generation: int | None = None) -> None:
        self.path = Path(path)
        self.config = read_run_config(path)
        start = ledger.first_generation(self.path / "ledger.bin") - 1
        if generation is not None and generation < start:
            raise RunError(
                f"{path}: generation {generation} cannot be replayed, since its ledger begins with generation "
                f"{start + 1} and earlier ones are lost; give {start} or a later one"
            )
        arrays, attributes = first_checkpoint(self.path, start)
        self.digest = str(attributes["digest"])
        with fitting(path):
            dimension, observation_size = len(arrays["solver/mean"]), len(arrays["normalizer/total"])
            solver = make_solver(self.config, dimension)
            self._updater = Updater(self.config, solver, Serial())
            self.learner = Learner(self.config, solver, observation_size, self._constants())
            self.learner.restore(arrays)
        self._updater.begin(self.learner)
        self._records = ledger.read_records(self.path / "ledger.bin", after=start)
        if generation is not None:
            self.run_until(generation)

    def _constants(self) -> Arrays:
        """The constants of the run's policy, which no generation changes; {} where no policy is saved yet."""
        try:
            return select(hdf5.read(find_policy(self.path))[0], "constants/")
        except RunError:
            return {}

    @property
    def generation(self) -> int:
        return self.learner.clock.generation

    def run_until(self, generation: int) -> None:
        """Take the steps up to a later generation.  Raises RunError where the ledger ends before."""
        while self.generation < generation:
            record = next(self._records, None)
            if record is None:  # the ledger of a run that goes on may have grown since it was opened
                self._records = ledger.read_records(self.path / "ledger.bin", after=self.generation)
                record = next(self._records, None)
            if record is None:
                raise RunError(
                    f"{self.path}: generation {generation} is not in its ledger, which ends at "
                    f"{self.generation}; give that or an earlier one"
                )
            with fitting(self.path):
                self._updater.replay(record)
            self.digest = str(record["digest"])

    def next_parts(self) -> list[Part]:
        """The parts of the coming generation's first population."""
        return self._updater.next_parts()[0]

    def policy_file(self) -> PolicyFile:
        """The mean, with the observation statistics, as a policy; later generations do not change it."""
        arrays = {name: np.array(value) for name, value in self.learner.policy().items()}
        settings = RunView(absolute(self.path)).config()  # as they were signed
        signature = str(signature_of(settings) or "")
        settings.pop("versions", None)
        attributes = {"config": as_yaml(settings), "generation": self.generation, "signature": signature}
        return PolicyFile(self.path, self.config, arrays, attributes)

    def save(self, path: str | Path) -> None:
        """Write the mean as a policy file.  Raises ConfigError for a file of a run's own, OSError for the system's."""
        refuse_run_file(path)
        self.policy_file().save(path)

    def is_faithful(self) -> bool:
        """Whether the state is, to the bit, the recorded one."""
        return self.learner.digest() == self.digest


def load_policy_of(path: str | Path, generation: int | None) -> PolicyFile:
    """The mean of a run after a generation, computed from its ledger; None for what `load_policy` returns.

    Raises RunError for a policy file, and where the ledger does not hold the generation.
    """
    if generation is None:
        return load_policy(path)
    if not is_run(path):
        find_policy(path)  # says what is wrong where there is no policy either
        raise RunError(f"{path}: is a single policy; --generation needs a run directory")
    return Replay(path, generation).policy_file()


@dataclass(frozen=True)
class RecordedMember:
    """A member of a generation in the ledger.

    batch, rollouts: the batch of members that it belongs to, and its own episodes in it.
    recorded_return: the mean of their returns.
    """

    config: Config
    task: Task
    batch: RolloutBatch
    rollouts: range
    recorded_return: float

    def replay(self) -> tuple[float, dict[int, str]]:
        """Play it again.  Returns its return, and the messages of episodes that failed."""
        records, failures = play_alone(self.task.player, self.batch, self.rollouts)
        total = float(records["total"].reshape(1, -1).mean(axis=1)[0])
        return total, {rollout - self.rollouts.start: message for rollout, message in failures.items()}


def load_member(path: str | Path, generation: int, member: int) -> RecordedMember:
    """Member number `member` of a generation.  Raises RunError when there is no such member."""
    before = Replay(path)
    record = ledger.read_record(path, generation)
    before.run_until(generation - 1)
    if member >= (members := len(record["returns"])):
        raise RunError(f"{path}: generation {generation} has no member {member}; its members are 0 to {members - 1}")
    config, task = before.config, Task(before.config, before.learner.constants)
    number, place = divmod(member, config.solver.members(task.dimension))
    parts = before.next_parts() if number == 0 else before.next_parts()[-1:]
    part = next((part for part in parts if part.start <= place < part.stop), parts[-1])
    whole = Part(part.spec, 0, config.solver.members(task.dimension))
    solver = before.learner.solver
    indices = solver.population_indices(generation - 1, number)
    batch = training_batch(task, solver, whole, generation - 1, number, indices)
    rollouts = range(place * config.solver.episodes, (place + 1) * config.solver.episodes)
    return RecordedMember(config, task, batch, rollouts, float(record["returns"][member]))
