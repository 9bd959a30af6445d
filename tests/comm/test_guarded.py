"""An exception of one rank alone: the others learn of it wherever they are, and all go on with something else."""

import contextlib
import uuid

import numpy as np
import pytest

from mpies.comm import Communicator, connect
from mpies.comm.guarded import Guarded, PeerFailed
from mpies.comm.serial import Serial
from mpies.config.loading import validate_config
from mpies.runs.directory import open_run
from mpies.runs.writer import RunWriter
from mpies.training.trainer import make_trainer
from tests.support import calling_lines, first_of_each

CONFIGS = {
    "overlap": {"solver": {"kind": "pepg", "population": 12}, "overlap": 1},
    "batches": {"solver": {"population": 8, "timesteps_per_batch": 12}},
    "candidates": {"solver": {"kind": "cma_es", "population": 8}},
}
COMMON = {
    "environment": {"id": "function:rosenbrock", "dimension": 6, "shift": 1},
    "noise": {"size": 1000},
    "evaluation": {"every": 2},
}


class FailingAt(Guarded):
    """Raises an exception on one rank before its operation of this number; notes what calls each."""

    def __init__(self, inner, failing=-1, at=0):
        super().__init__(inner)
        self.failing, self.at, self.places = failing, at, []

    def _check(self):
        self.places.append(calling_lines())
        if self.rank == self.failing and len(self.places) == self.at:
            raise RuntimeError(f"rank {self.failing}, operation {self.at}")
        return super()._check()


def train(name, guarded, folder, play=None, generations=2):
    """Train on all ranks.  play: called in place of the player's own `play`, with that as its first argument.

    Returns the digest of the learner's state on rank 0, '' elsewhere; or what all ranks have agreed on.
    """
    config = validate_config(COMMON | CONFIGS[name] | {"stop": {"generations": generations}}, name)
    with contextlib.ExitStack() as stack:
        try:
            path = folder / uuid.uuid4().hex
            run = open_run(path, config, job="job") if guarded.is_root else RunWriter(path, config, "job")
            stack.callback(run.close)
            trainer = make_trainer(config, guarded, run)
            if play:
                own = trainer.task.player.play
                trainer.task.player.play = lambda *arguments: play(own, *arguments)
            assert trainer.train() == "generations"
            return trainer.learner.digest() if trainer.learner else ""
        except Exception as error:
            return guarded.fail(str(error) if isinstance(error, RuntimeError) else repr(error))


def renew(comm):
    fresh = comm.split(0)
    comm.close()
    return fresh


@pytest.mark.mpi(3)
@pytest.mark.parametrize("name", CONFIGS)
def test_a_rank_may_fail_at_any_place(name, tmp_path):
    comm = connect().split(0)
    plain = train(name, comm, tmp_path)
    noting = FailingAt(comm)
    assert train(name, noting, tmp_path) == plain and not noting.has_failed
    numbers = comm.broadcast([np.array(first_of_each(noting.places))])[0].tolist()  # rank 0 has places of its own
    assert len(numbers) > 10
    for at in numbers:
        guarded = FailingAt(comm, at % 3, at)
        assert train(name, guarded, tmp_path) == f"rank {at % 3}, operation {at}"
        assert guarded.has_failed
        comm = renew(comm)
    assert train(name, Guarded(comm), tmp_path) == plain
    comm.close()


@pytest.mark.mpi(3)
@pytest.mark.parametrize(("failing", "is_late"), [(0, False), (2, True)])
def test_a_rank_may_fail_while_the_others_play(failing, is_late, tmp_path):
    comm = connect().split(0)
    rank, plain = comm.rank, train("overlap", comm, tmp_path, generations=4)
    for at in range(1, 7):  # four generations and two evaluations
        calls = []

        def play(own, *arguments, calls=calls, at=at):
            calls.append(at)
            fails = rank == failing and len(calls) == at
            if is_late or not fails:
                own(*arguments)
            if fails:
                raise RuntimeError(f"play {at}")

        assert train("overlap", Guarded(comm), tmp_path, play, 4) == f"play {at}"
        comm = renew(comm)
    assert train("overlap", Guarded(comm), tmp_path, generations=4) == plain
    comm.close()


@pytest.mark.mpi(3)
def test_the_lowest_of_several_messages_counts_and_nothing_works_afterwards():
    comm = connect().split(0)
    guarded = Guarded(comm)
    if comm.rank:
        assert guarded.fail(f"from {comm.rank}") == "from 1"
    else:
        with pytest.raises(PeerFailed, match="from 1"):
            guarded.broadcast_int(1)
        assert guarded.fail("too late") == "from 1"
    with pytest.raises(PeerFailed, match="from 1"):
        guarded.node_barrier()
    renew(comm).close()


# What is collective, with arguments; and what is not, or ends the use of the communicator.
COLLECTIVE = {
    **{"is_any": [True], "broadcast": [None], "broadcast_rows": [None, None], "allgather": [None], "gather": [None]},
    **{"gather_blocks": [None, None], "allocate_shared": [1, np.float32], "open_node_file": [], "node_barrier": []},
    **{"nonblocking_barrier": [], "first_error": [""], "split": [0]},
}
OTHERS = {"work_counter", "abandon_requested", "request_abandon", "repair", "abort", "close", "finalize"}


def test_every_collective_operation_is_guarded():
    assert COLLECTIVE.keys() | OTHERS == Communicator.__abstractmethods__
    inner = Serial()
    guarded = Guarded(inner)
    assert not inner.abandon_requested and guarded.fail("it broke") == "it broke"
    assert inner.abandon_requested
    guarded.request_abandon()  # which no failure forbids
    for name, arguments in COLLECTIVE.items():
        with pytest.raises(PeerFailed, match="it broke"):
            getattr(guarded, name)(*arguments)
