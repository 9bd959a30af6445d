from collections.abc import Sequence
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt
from typing_extensions import disjoint_base

from mpies.envs.base import Calls, EpisodeBatch

PARTS_OF_ACTIONS: tuple[str, ...]
ACTIVATIONS: tuple[str, ...]
RECURRENT_KINDS: tuple[str, ...]

def use_vectors(lanes: int, wide_from: int) -> tuple[int, int]: ...

@disjoint_base
class CompiledNetwork:
    states: tuple[npt.NDArray[Any], ...]
    result: npt.NDArray[Any]
    def __init__(self, first_weights: npt.NDArray[np.float32], inputs: int, outputs: int) -> None: ...
    def clip_outputs(self, low: npt.NDArray[np.float32], high: npt.NDArray[np.float32]) -> None: ...
    def choose_largest(self) -> None: ...
    def choose_parts(
        self, parts: Sequence[tuple[str, int]], low: npt.NDArray[np.float32], high: npt.NDArray[np.float32]
    ) -> None: ...
    def begin(self, slot: int) -> None: ...
    def __call__(self, inputs: npt.NDArray[np.float32]) -> npt.NDArray[Any]: ...

@final
class Perceptrons(CompiledNetwork):
    def __init__(
        self, first_weights: npt.NDArray[np.float32], widths: Sequence[int], has_biases: bool, activation: str
    ) -> None: ...
    @staticmethod
    def can_compute(first_weights: npt.NDArray[np.float32], widths: Sequence[int]) -> bool: ...

@final
class Recurrent(CompiledNetwork):
    def __init__(self, first_weights: npt.NDArray[np.float32], kind: str, units: int, outputs: int) -> None: ...
    @staticmethod
    def can_compute(first_weights: npt.NDArray[np.float32], units: int) -> bool: ...
    def begin(self, slot: int) -> None: ...

@final
class Convolutions(CompiledNetwork):
    def __init__(
        self,
        first_weights: npt.NDArray[np.float32],
        images: Sequence[Sequence[int]],
        convolutions: Sequence[Sequence[int]],
        dense: Sequence[int],
        outputs: int,
        activation: str,
        reference: npt.NDArray[np.uint8] | None = None,
    ) -> None: ...
    @staticmethod
    def can_compute(first_weights: npt.NDArray[np.float32]) -> bool: ...
    def begin(self, slot: int) -> None: ...

@final
class ObservationPass:
    def __init__(
        self,
        observations: npt.NDArray[np.float32],
        centres: npt.NDArray[np.float32],
        scales: npt.NDArray[np.float32],
        inputs: npt.NDArray[np.float32],
        sums: npt.NDArray[np.float64],
        sampled: npt.NDArray[np.bool_],
        clip: float,
    ) -> None: ...
    def __call__(self, slots: int, normalizes: bool) -> None: ...

@final
class RewardPass:
    def __init__(
        self,
        rewards: npt.NDArray[np.float64],
        totals: npt.NDArray[np.float64],
        signs: npt.NDArray[np.float64] | None,
        begun: npt.NDArray[np.int64],
        limits: npt.NDArray[np.int64],
        over: npt.NDArray[np.bool_],
    ) -> None: ...
    def __call__(self, slots: int, step: int) -> int: ...

class _OpenBatch(Protocol):
    """What the loop reads of a batch: its episodes that are in slots, in the slots' order."""

    batch: EpisodeBatch
    places: npt.NDArray[np.int32]

@final
class StepLoop:
    calls: Calls | None
    def __init__(
        self, observation_pass: ObservationPass, network: CompiledNetwork, reward_pass: RewardPass
    ) -> None: ...
    def prepare(self, batches: Sequence[_OpenBatch]) -> bool: ...
    def __call__(self, slots: int, step: int, most: int, samples: bool, normalizes: bool) -> int: ...
