"""Names of the types of arrays."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Int64s = npt.NDArray[np.int64]
Float32s = npt.NDArray[np.float32]
Float64s = npt.NDArray[np.float64]
FloatArray = npt.NDArray[np.floating]  # float32 in a run; float64 when a solver is compared with another package
