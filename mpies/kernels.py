"""The inner loop of rollouts, compiled: _kernels.c.  Where it was not compiled, NumPy computes the same bits."""

import ctypes
import importlib.util

import numpy as np

ACTIVATIONS = ("linear", "tanh", "relu", "lrelu", "elu")  # as _kernels.c counts them


def load():
    """The compiled library, or None."""
    found = importlib.util.find_spec("mpies._kernels")
    if found is None:
        return None
    try:
        library = ctypes.CDLL(found.origin)
    except OSError:  # compiled elsewhere, for another system
        return None
    library.mpies_widest.restype = library.mpies_score.restype = ctypes.c_long
    library.mpies_forward.restype = library.mpies_look.restype = None
    library.mpies_forward.argtypes = (ctypes.c_void_p, ctypes.c_long)
    library.mpies_look.argtypes = library.mpies_score.argtypes = (ctypes.c_void_p, ctypes.c_long, ctypes.c_long)
    return library


LIBRARY = load()


class _Perceptrons(ctypes.Structure):
    """`struct perceptrons`."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("widths", "stack", "inputs", "outputs")),
        *((name, ctypes.c_long) for name in ("layers", "stride", "has_biases", "activation")),
    )


class Perceptrons:
    """The Network of perceptrons, each with a row of a stack for parameters.

    first: (n, in, out) view of the first layer's weights, behind which lie the rest of a row's.
    widths: (layers + 1) units.  bias: whether layers have one.  activation: of all but the last.
    """

    states = ()

    def __init__(self, first, widths, bias, activation):
        self._stack = first  # kept alive, as are the others
        self._widths = (ctypes.c_long * len(widths))(*widths)
        self._inputs, self._outputs = (np.empty((len(first), width), np.float32) for width in (widths[0], widths[-1]))
        arrays = (array.ctypes.data for array in (first, self._inputs, self._outputs))
        shape = (len(widths) - 1, first.strides[0] // 4, bias, ACTIVATIONS.index(activation))
        self._of = _Perceptrons(ctypes.addressof(self._widths), *arrays, *shape)
        self._at = ctypes.addressof(self._of)
        self._compute = LIBRARY.mpies_forward

    @staticmethod
    def serve(first, widths):
        """Whether they were compiled, and can compute this."""
        in_rows = first.dtype == np.float32 and first.strides[1:] == (4 * widths[1], 4) and not first.strides[0] % 4
        return LIBRARY is not None and in_rows and max(widths[1:-1], default=0) <= LIBRARY.mpies_widest()

    def begin(self, lane):
        """As Network.begin."""

    def __call__(self, inputs):
        """As Network.__call__."""
        count = len(inputs)
        self._inputs[:count] = inputs
        self._compute(self._at, count)
        return self._outputs[:count]


class _Sight(ctypes.Structure):
    """`struct sight`."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("observations", "centres", "scales", "inputs", "sums", "sampled")),
        ("size", ctypes.c_long),
        ("clip", ctypes.c_float),
    )


class Sight:
    """Notes and normalises what lanes see, in an EpisodePlayer's arrays: its `_look_by_numpy`, compiled."""

    def __init__(self, observations, centres, scales, inputs, sums, sampled, clip):
        self._arrays = observations, centres, scales, inputs, sums, sampled
        assert all(array.flags.c_contiguous for array in self._arrays)
        at = (array.ctypes.data for array in self._arrays)
        self._of = _Sight(*at, observations.shape[1], clip)
        self._at = ctypes.addressof(self._of)
        self._look = LIBRARY.mpies_look

    def __call__(self, lanes, normalizes):
        self._look(self._at, lanes, normalizes)


class _Score(ctypes.Structure):
    """`struct score`."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("rewards", "totals", "signs", "begun", "limits", "over"))


class Score:
    """Adds up what a step brings, in an EpisodePlayer's arrays: its `_score_by_numpy`, compiled.  signs: or None."""

    def __init__(self, rewards, totals, signs, begun, limits, over):
        self._arrays = rewards, totals, signs, begun, limits, over
        self._of = _Score(*(None if array is None else array.ctypes.data for array in self._arrays))
        self._at = ctypes.addressof(self._of)
        self._score = LIBRARY.mpies_score

    def __call__(self, lanes, step):
        return self._score(self._at, lanes, step)
