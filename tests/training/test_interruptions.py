"""A rank is lost, or the process dies, at every point where ranks communicate: nothing is lost or played twice."""

import pytest

from mpies.comm import RankLost
from mpies.comm.serial import Serial
from mpies.config.loading import validate_config
from mpies.runs.directory import open_run
from mpies.runs.formats import ledger
from mpies.runs.formats.metrics import read_digests, read_metrics
from mpies.training.trainer import make_trainer
from tests.support import calling_lines, first_of_each

CONFIGS = {
    "overlap": {"solver": {"kind": "pepg", "population": 8}, "overlap": 1},
    "batches": {"solver": {"population": 8, "sigma": 0.2, "timesteps_per_batch": 12}},
    "candidates": {"solver": {"kind": "cma_es", "population": 8}},
}
COMMON = {
    "environment": {"id": "function:rosenbrock", "dimension": 6, "shift": 1},
    "noise": {"size": 1000},
    "evaluation": {"every": 2},
    "checkpoint": {"every": 2, "share": 1},
    "stop": {"generations": 4},
}


class Death(Exception):
    """The process ends."""


def interruptible(operation):
    def operate(self, *arguments):
        self.count += 1
        self.places.append(calling_lines("mpies/training/"))
        if self.count in self.numbers:
            raise self.error("interrupted")
        return operation(self, *arguments)

    return operate


class InterruptedSerial(Serial):
    """One rank; its collective operations of these numbers raise an error.  lost: what `repair` returns."""

    lost = "process 1 on another host"

    def __init__(self, *numbers, error=RankLost):
        super().__init__()
        self.numbers, self.error, self.count, self.places = numbers, error, 0, []

    broadcast, broadcast_rows = interruptible(Serial.broadcast), interruptible(Serial.broadcast_rows)
    allgather, gather = interruptible(Serial.allgather), interruptible(Serial.gather)
    gather_blocks = interruptible(Serial.gather_blocks)

    def repair(self):
        return self.lost


def train(name, folder, comm):
    """Train in this process.  Returns the run's path, the rollouts that were played, and the rows shown."""
    config = validate_config(COMMON | CONFIGS[name], name)
    run, played, shown = open_run(folder, config, job="this job"), [], []
    trainer = make_trainer(config, comm, run)
    trainer.on_generation = lambda snapshot: shown.append(snapshot.generation)
    player, play = trainer.task.player, trainer.task.player.play
    player.play = lambda queues, *rest: played.extend(len(queue.pending) for queue in queues) or play(queues, *rest)
    comm.count, comm.places = 0, []  # what is collective before is for the process to survive, not for the trainer
    try:
        assert trainer.train() == "generations"
    finally:
        run.flush()
        run.close()
    return folder, sum(played), shown


@pytest.fixture(scope="module", params=CONFIGS)
def undisturbed(request, tmp_path_factory):
    """Name of a config, digests of its run, rollouts that it plays, and the places of its collective operations."""
    comm = InterruptedSerial()
    run, played, shown = train(request.param, tmp_path_factory.mktemp("undisturbed") / "run", comm)
    assert shown == [1, 2, 3, 4] and comm.count > 20
    return request.param, read_digests(run), played, comm.places


def assert_complete(run, digests):
    assert read_digests(run) == digests
    assert [int(record["generation"]) for record in ledger.read_records(run / "ledger.bin")] == [1, 2, 3, 4]
    assert [bool(row["eval_mean"]) for row in read_metrics(run)] == [False, True] * 2


def test_ranks_that_are_lost_anywhere_or_several_in_a_row_cost_no_rollout_and_change_no_bit(undisturbed, tmp_path):
    name, digests, expected, places = undisturbed
    # "overlap" and "batches" have what others have.
    losses = [(at,) for at in first_of_each(places, times=1 if name == "candidates" else 2)]
    if name == "batches":
        more = (2,), (3, 4), (5, 11)
        losses += [(at, *(at + later for later in more[at // 3 % 3])) for at in range(1, len(places) + 1, 3)]
    for operations in losses:
        run, played, shown = train(name, tmp_path / f"run-{operations}", InterruptedSerial(*operations))
        assert_complete(run, digests)
        assert (played, shown) == (expected, [1, 2, 3, 4]), f"operations {operations}"


@pytest.mark.parametrize(
    ("lost", "what"), [("process 7 on b", "lost process 7 on b"), ("", "MPI reported a failure, but no rank was lost")]
)
def test_the_log_says_who_was_lost(lost, what, tmp_path, caplog):
    comm = InterruptedSerial(9)
    comm.lost = lost
    train("batches", tmp_path / "run", comm)
    (message,) = [message for message in caplog.messages if "training continues" in message]
    assert message.startswith(f"{what}; training continues on 1 rank after 0.")


def test_a_process_that_dies_anywhere_is_resumed_with_the_same_bits(undisturbed, tmp_path):
    name, digests, expected, places = undisturbed
    for at in first_of_each(places):
        folder = tmp_path / f"run-{at}"
        with pytest.raises(Death):
            train(name, folder, InterruptedSerial(at, error=Death))
        on_disk = read_digests(folder)
        assert on_disk == digests[: len(on_disk)]
        run, played, shown = train(name, folder, InterruptedSerial())
        assert_complete(run, digests)
        assert shown == [1, 2, 3, 4][len(on_disk) :], f"operation {at}"
        assert played <= expected, f"operation {at}"
