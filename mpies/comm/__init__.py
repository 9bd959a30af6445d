"""Communication between ranks: one interface, with MPI or without."""

import os

from mpies.comm.communicator import LAUNCHED, ROOT, Communicator, RankLost

__all__ = ["LAUNCHED", "ROOT", "Communicator", "RankLost", "connect"]


def connect() -> Communicator:
    """The communicator of this process: MPICommunicator when a process manager started it, else Serial."""
    if any(name in os.environ for name in LAUNCHED):
        from mpies.comm.mpi import MPICommunicator

        return MPICommunicator()
    from mpies.comm.serial import Serial

    return Serial()
