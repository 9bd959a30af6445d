"""Each rank is a node of its own: whatever shares they get, a run has the same bits."""

import functools

import numpy as np
import pytest

from mpies.comm.mpi import MPICommunicator
from mpies.comm.serial import Serial
from mpies.config.loading import validate_config
from mpies.rollouts.node_speeds import NodeSpeeds
from mpies.training.trainer import make_trainer

SHARES = {
    "measured": NodeSpeeds.shares,
    "one node alone": lambda self, total: [0.0, 1.0, 0.0],
    "hardly any": lambda self, total: [1e-9, 7.0, 1.0],
    "in turn": lambda self, total: [float(total % 3 == node) + 1e-3 for node in range(3)],
}


def nodes_of_one_rank():
    from mpi4py import MPI

    class Alone(MPI.Intracomm):
        def Split_type(self, *_, **__):  # noqa: N802
            return self.Split(self.rank)

    return MPICommunicator(Alone(MPI.COMM_WORLD))


def train(comm, overlap):
    """Digests of some generations on rank 0, and of the returns of an evaluation on all."""
    values = {
        "environment": {"id": "CartPole-v1", "max_steps": 60},
        "policy": {"hidden": []},
        "solver": {"population": 14, "sigma": 0.5, "timesteps_per_batch": 700},
        "noise": {"size": 20000},
        "overlap": overlap,
    }
    trainer, found = make_trainer(validate_config(values, "x"), comm), []
    trainer.restore()
    for _ in range(4):
        trainer.run_generation()
        found += [trainer.learner.digest()] if trainer.learner else []
    mean = trainer.evaluator.evaluate_mean(trainer.updater.broadcast_mean(), 4)
    return trainer, found, mean.returns.tolist()


@functools.cache
def alone(overlap):
    return train(Serial(), overlap)[1:]


@pytest.mark.mpi(3)
@pytest.mark.parametrize("overlap", [0, 0.5])
@pytest.mark.parametrize("shares", SHARES)
def test_no_bit_depends_on_the_shares(shares, overlap, monkeypatch):
    digests, returns = alone(overlap)
    comm = nodes_of_one_rank()
    assert comm.nodes == 3 and list(comm.node_of) == [0, 1, 2] and comm.node == comm.rank
    monkeypatch.setattr(NodeSpeeds, "shares", SHARES[shares])
    trainer, found, evaluated = train(comm, overlap)
    assert evaluated == returns and (found == digests or not comm.is_root)
    speeds = trainer.evaluator.queues.speeds
    assert speeds._speeds and min(sum(some) for some in speeds._speeds) > 0
    if shares == "measured":  # by the clock, but all ranks find the same
        own = np.array(speeds.shares(1000))
        assert (comm.allgather(own)[0].reshape(3, 3) == own).all() and own.sum() == pytest.approx(1000)
    trainer.evaluator.keep_finished()  # a rank was lost: numbers of nodes may stand for others now
    assert trainer.evaluator.queues.speeds.shares(1000) is None or shares != "measured"
