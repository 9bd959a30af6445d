"""The inner loop of rollouts, compiled: _kernels.c.  Where it was not compiled, NumPy computes the same bits."""

import ctypes
import importlib.util

import numpy as np

ACTIVATIONS = ("linear", "tanh", "relu", "lrelu", "elu")  # as _kernels.c counts them
NONE, CLIPPED, LARGEST = range(3)


def load():
    """The compiled library, or None.  Its `play` is None where it was compiled without Python's headers."""
    found = importlib.util.find_spec("mpies.kernels._kernels")
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
    library.play = getattr(ctypes.PyDLL(found.origin), "mpies_play", None)  # the one that calls Python
    if library.play:
        library.play.restype, library.play.argtypes = ctypes.c_long, (ctypes.c_void_p, *[ctypes.c_long] * 3)
    return library


LIBRARY = load()


class _Perceptrons(ctypes.Structure):
    """`struct perceptrons`."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("widths", "stack", "inputs", "outputs", "low", "high", "chosen")),
        *((name, ctypes.c_long) for name in ("layers", "stride", "has_biases", "activation", "ending")),
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
        self.found = self._outputs
        arrays = (array.ctypes.data for array in (first, self._inputs, self._outputs))
        shape = (len(widths) - 1, first.strides[0] // 4, bias, ACTIVATIONS.index(activation))
        self.of = _Perceptrons(ctypes.addressof(self._widths), *arrays, None, None, None, *shape, NONE)
        self._at = ctypes.addressof(self.of)
        self._compute = LIBRARY.mpies_forward

    @staticmethod
    def serve(first, widths):
        """Whether they were compiled, and can compute this."""
        in_rows = first.dtype == np.float32 and first.strides[1:] == (4 * widths[1], 4) and not first.strides[0] % 4
        return LIBRARY is not None and in_rows and max(widths[1:-1], default=0) <= LIBRARY.mpies_widest()

    def clip(self, low, high):
        """Let calls return outputs clipped to these bounds (o,)."""
        self._bounds = low, high = low.copy(), high.copy()
        self.of.low, self.of.high, self.of.ending = low.ctypes.data, high.ctypes.data, CLIPPED

    def choose(self):
        """Let calls return the place (m,) int32 of each member's largest output."""
        self.found = np.zeros(len(self._outputs), np.int32)
        self.of.chosen, self.of.ending = self.found.ctypes.data, LARGEST

    def begin(self, slot):
        """As Network.begin."""

    def __call__(self, inputs):
        """As Network.__call__, or what `clip` or `choose` said."""
        count = len(inputs)
        self._inputs[:count] = inputs
        self._compute(self._at, count)
        return self.found[:count]


class _Sight(ctypes.Structure):
    """`struct sight`."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("observations", "centres", "scales", "inputs", "sums", "sampled")),
        ("size", ctypes.c_long),
        ("clip", ctypes.c_float),
    )


class Sight:
    """Notes and normalises what slots see, in an EpisodePlayer's arrays: its `_look_by_numpy`, compiled."""

    def __init__(self, observations, centres, scales, inputs, sums, sampled, clip):
        self._arrays = observations, centres, scales, inputs, sums, sampled
        assert all(array.flags.c_contiguous for array in self._arrays)
        at = (array.ctypes.data for array in self._arrays)
        self.of = _Sight(*at, observations.shape[1], clip)
        self._at = ctypes.addressof(self.of)
        self._look = LIBRARY.mpies_look

    def __call__(self, slots, normalizes):
        self._look(self._at, slots, normalizes)


class _Score(ctypes.Structure):
    """`struct score`."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("rewards", "totals", "signs", "begun", "limits", "over"))


class Score:
    """Adds up what a step brings, in an EpisodePlayer's arrays: its `_score_by_numpy`, compiled.  signs: or None."""

    def __init__(self, rewards, totals, signs, begun, limits, over):
        self._arrays = rewards, totals, signs, begun, limits, over
        self.of = _Score(*(None if array is None else array.ctypes.data for array in self._arrays))
        self._at = ctypes.addressof(self.of)
        self._score = LIBRARY.mpies_score

    def __call__(self, slots, step):
        return self._score(self._at, slots, step)


class _Loop(ctypes.Structure):
    """`struct loop`."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("sight", "policy", "score")),
        *((name, ctypes.py_object) for name in ("send", "receive", "message")),
        *((name, ctypes.c_void_p) for name in ("actions", "places")),
        ("at", ctypes.c_long * 4),
        *((name, ctypes.c_long) for name in ("looks", "normalizes")),
    )


class Loop:
    """Plays steps of an EpisodePlayer without Python in between, while one batch has all slots.

    sight: Sight.  network: Perceptrons that end in actions.  score: Score.
    """

    def __init__(self, sight, network, score):
        self._parts, self._found = (sight, network, score), network.found
        self._calls = self._actions = None
        self._places = np.zeros(len(self._found), np.int32)
        self.of = _Loop(*(ctypes.addressof(part.of) for part in self._parts))
        self.of.places = self._places.ctypes.data
        self._at = ctypes.addressof(self.of)
        self._play = LIBRARY.play

    def serve(self, opened):
        """Get ready for the steps of these batches, each with its `places` (m,) int32; returns whether it can."""
        calls = opened[0].batch.calls if len(opened) == 1 else None
        if calls is not self._calls:
            self._turn_to(calls)
        if self._actions is None:
            return False
        count = len(opened[0].places)
        places, actions = self._places[:count], self._actions[:count]
        places[:] = opened[0].places
        self.of.message = [places, places, actions]
        return True

    def _turn_to(self, calls):
        """Get ready for another batch; None lets go of the one before."""
        of, self._calls, self._actions = self.of, calls, None
        of.send = of.receive = of.message = of.actions = None
        if calls is None:
            return
        of.send, of.receive, of.at = calls.send, calls.receive, calls.at
        if calls.action_type == self._found.dtype:
            self._actions = self._found
        elif calls.action_type == np.float64:
            self._actions = self._found.astype(np.float64)
            of.actions = self._actions.ctypes.data

    def __call__(self, slots, step, most, samples, normalizes):
        """Steps number `step` and following until one is an episode's last, `most` at most; returns how many."""
        self.of.looks, self.of.normalizes = samples or normalizes, normalizes
        return self._play(self._at, slots, step, most)
