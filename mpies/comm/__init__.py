"""Communication between ranks: one interface, with MPI or without."""

import os

from mpies.comm.communicator import LAUNCHED, ROOT, Communicator, RankLost, is_launched
from mpies.core.errors import ConfigError

__all__ = ["LAUNCHED", "ROOT", "Communicator", "RankLost", "connect", "is_launched"]

SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")  # how many ranks Open MPI's or MPICH's mpirun has started
RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")  # which of them this one is


def connect() -> Communicator:
    """The communicator of this process: MPICommunicator when a process manager started it, else Serial.

    Raises ConfigError where mpi4py finds no MPI library, and where the process manager is of another MPI than mpi4py's,
    so that each rank would be alone.
    """
    if is_launched():
        started = next((os.environ[name] for name in SIZES if os.environ.get(name, "").isdecimal()), "1")
        from mpies.comm.mpi import MPICommunicator, library_name

        comm = MPICommunicator()
        if comm.size == 1 < int(started):
            raise ConfigError(
                f"mpirun started {started} ranks, but they cannot find each other: it belongs to another MPI than "
                f"mpi4py's, which is {library_name()}; use the mpirun of that MPI, or: pip install --force-reinstall "
                "--no-binary mpi4py mpi4py"
            )
        return comm
    from mpies.comm.serial import Serial

    return Serial()
