"""The abstract Network inside a policy."""

from abc import abstractmethod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


class Network(Protocol):
    """From inputs to outputs, for the members of a stack; member number k has slot k.

    states: what episodes carry from step to step, arrays whose first axis is slots; () for none.
    """

    states: tuple[npt.NDArray[Any], ...] = ()

    def begin(self, slot: int) -> None:
        """Begin an episode in a slot.  The member's parameters are already in the stack."""
        return None

    @abstractmethod
    def __call__(self, inputs: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Outputs (m, outputs) of the first m members for inputs (m, inputs).  The caller may write to them."""
