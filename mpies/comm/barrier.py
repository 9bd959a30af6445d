"""A barrier that a rank enters and goes on working, until all ranks have entered it."""

from abc import ABC, abstractmethod
from typing import Any


class NonblockingBarrier(ABC):
    """All ranks must enter it, each by its first `is_over` or by `wait`."""

    @abstractmethod
    def is_over(self) -> bool:
        """Whether all ranks have entered; the first call enters this rank."""

    @abstractmethod
    def wait(self) -> None:
        """Return when all ranks have entered."""


class SerialBarrier(NonblockingBarrier):
    """One rank waits for nobody."""

    def is_over(self) -> bool:
        return True

    def wait(self) -> None:
        return None


class MPIBarrier(NonblockingBarrier):
    """MPI_Ibarrier on an mpi4py communicator."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self._request: Any = None

    def is_over(self) -> bool:
        if self._request is None:
            self._request = self._world.Ibarrier()
        return bool(self._request.Test())

    def wait(self) -> None:
        if not self.is_over():
            self._request.Wait()
