# cython: auto_pickle=False, autotestdict=False
"""Python classes around the functions of kernels.h: the inner loop of rollouts.

A class takes its NumPy arrays once, checks their types and shapes, and keeps them alive; a call then passes pointers.
The C compiler compares the structures below with those of kernels.h, and stops where they differ.  compiled.pyi
describes the same classes to type checkers.
"""

cimport cython
from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport strchr

from itertools import pairwise

import numpy as np


cdef extern from "kernels.h":
    enum ending:
        CLIPPED
        LARGEST
        PARTS

    struct perceptrons:
        const int64_t *widths
        const float *stack
        const float *inputs
        float *outputs
        long layers, stride, has_biases, activation

    struct recurrent:
        const float *stack
        const float *inputs
        float *outputs
        float *unit_values
        float *cells
        long kind, inputs_per_member, units, outputs_per_member, stride

    struct layer:
        pass

    struct convolutions:
        const layer *layers
        const float *stack
        const float *inputs
        float *outputs
        float *factors
        const uint8_t *reference
        float *image
        float *buffers[2]
        double *moments
        int32_t *nonzero
        long hidden, stride, channels, pixels, last_inputs, outputs_per_member, activation, has_factors
        long factors_per_member, reference_count

    struct head:
        float *outputs
        const float *low
        const float *high
        int32_t *largest
        const int64_t *parts
        float *actions
        long width, ending, part_count, action_width

    struct observation_pass:
        float *observations
        const float *centres
        const float *scales
        float *inputs
        double *sums
        const uint8_t *sampled
        long size
        float clip

    struct reward_pass:
        double *rewards
        double *totals
        double *signs
        const int64_t *begun
        const int64_t *limits
        uint8_t *over

    long mpies_lanes, mpies_wide_from
    long mpies_most_units()
    void mpies_run_perceptrons(const perceptrons *net, long members) nogil
    void mpies_run_recurrent(const recurrent *net, long members) nogil
    void mpies_run_convolutions(const convolutions *net, long members) nogil
    void mpies_refer(const convolutions *net, long member) nogil
    void mpies_decide(const head *head, long members) nogil
    void mpies_observe(const observation_pass *, long slots, long normalizes) nogil
    long mpies_score(const reward_pass *, long slots, long step) nogil


PARTS_OF_ACTIONS = ("Continuous", "Discrete", "Binary")  # in the order of `enum part`
ACTIVATIONS = ("linear", "tanh", "relu", "lrelu", "elu")  # in the order of `enum activation`
RECURRENT_KINDS = ("lstm", "gru", "elman")  # in the order of `enum units`
cdef enum:
    MOST_LANES = 16  # floats of the widest vectors


def use_vectors(long lanes, long wide_from):
    """Set SIMD lanes of the widest vectors, and from how many parameters they are used.  Returns those before."""
    global mpies_lanes, mpies_wide_from
    before = mpies_lanes, mpies_wide_from
    mpies_lanes, mpies_wide_from = lanes, wide_from
    return before


include "networks.pxi"


@cython.final
cdef class ObservationPass:
    """Sums up and normalises the observations in a player's arrays, as EpisodePlayer does in NumPy.

    observations, centres, scales, inputs: (n, o) float32.  sums: (n, 2, o) float64.  sampled: (n,) bool.
    clip: bound on normalised observations.
    """

    cdef observation_pass _arrays
    cdef float[:, ::1] _observations, _inputs
    cdef const float[:, ::1] _centres, _scales
    cdef double[:, :, ::1] _sums
    cdef const uint8_t[::1] _sampled

    def __init__(self, float[:, ::1] observations, const float[:, ::1] centres, const float[:, ::1] scales,
                 float[:, ::1] inputs, double[:, :, ::1] sums, sampled, float clip):
        shape = observations.shape[0], observations.shape[1]
        _check_shapes(shape, centres, scales, inputs)
        _check_shapes((shape[0], 2, shape[1]), sums)
        _check_shapes(shape[:1], sampled)
        self._observations, self._centres, self._scales, self._inputs = observations, centres, scales, inputs
        self._sums, self._sampled = sums, sampled.view(np.uint8)
        self._arrays.observations, self._arrays.inputs = &observations[0, 0], &inputs[0, 0]
        self._arrays.centres, self._arrays.scales = &centres[0, 0], &scales[0, 0]
        self._arrays.sums, self._arrays.sampled = &sums[0, 0, 0], &self._sampled[0]
        self._arrays.size, self._arrays.clip = observations.shape[1], clip

    def __call__(self, long slots, bint normalizes):
        """Add the sampled observations of the first slots to the sums; if normalizes, write their inputs."""
        _check_count(slots, self._observations.shape[0])
        with nogil:
            mpies_observe(&self._arrays, slots, normalizes)


@cython.final
cdef class RewardPass:
    """Sums up rewards and ends episodes in a player's arrays, as EpisodePlayer does in NumPy.

    rewards, totals, signs: (n,) float64; signs may be None.  begun, limits: (n,) int64.  over: (n,) bool.
    """

    cdef reward_pass _arrays
    cdef double[::1] _rewards, _totals, _signs
    cdef const int64_t[::1] _begun, _limits
    cdef uint8_t[::1] _over

    def __init__(self, double[::1] rewards, double[::1] totals, double[::1] signs, const int64_t[::1] begun,
                 const int64_t[::1] limits, over):
        _check_shapes((len(rewards),), totals, rewards if signs is None else signs, begun, limits, over)
        self._rewards, self._totals, self._signs, self._begun, self._limits = rewards, totals, signs, begun, limits
        self._over = over.view(np.uint8)
        self._arrays.rewards, self._arrays.totals = &rewards[0], &totals[0]
        self._arrays.signs = NULL if signs is None else &signs[0]
        self._arrays.begun, self._arrays.limits, self._arrays.over = &begun[0], &limits[0], &self._over[0]

    def __call__(self, long slots, long step):
        """Add the rewards of step number `step` of the first slots.  Returns how many of their episodes are over."""
        cdef long ended
        _check_count(slots, self._rewards.shape[0])
        with nogil:
            ended = mpies_score(&self._arrays, slots, step)
        return ended


@cython.final
cdef class StepLoop:
    """Steps episodes of a player without running Python code between EnvPool's calls.

    All slots must hold episodes of one batch that has Calls (mpies.envs.base), and the network must return actions.
    calls: those of the batch that it is prepared for; None between batches.
    """

    cdef ObservationPass _observation_pass
    cdef CompiledNetwork _network
    cdef RewardPass _reward_pass
    cdef readonly object calls
    cdef object _places, _actions
    cdef Py_ssize_t _at[4]  # positions of observations, rewards, ends and places in what EnvPool returns
    cdef long _received_size  # numbers of an observation that EnvPool returns
    cdef const int64_t[::1] _shown  # which of them are kept; None for all
    cdef list _message  # what EnvPool takes: places, places again, actions
    cdef const int32_t[::1] _expected_places
    cdef double[:, ::1] _float64_actions  # None if the actions are the network's own array

    def __init__(self, ObservationPass observation_pass not None, CompiledNetwork network not None,
                 RewardPass reward_pass not None):
        self._observation_pass, self._network, self._reward_pass = observation_pass, network, reward_pass
        self._places = np.zeros(len(network.result), np.int32)
        self._expected_places = self._places

    def prepare(self, batches):
        """Get ready to step the batches that have episodes in slots.  Returns whether this loop can step them."""
        calls = batches[0].batch.calls if len(batches) == 1 else None
        if calls is not self.calls:
            self._turn_to(calls)
        if self._actions is None:
            return False
        count = len(batches[0].places)
        places, actions = self._places[:count], self._actions[:count]
        places[:] = batches[0].places
        self._message = [places, places, actions]
        return True

    cdef _turn_to(self, calls):
        """Make the array of actions for these calls; None releases the batch before."""
        cdef int number
        self.calls = calls
        self._actions = self._message = self._float64_actions = None
        if calls is None:
            return
        for number in range(4):
            self._at[number] = calls.at[number]
        size = self._observation_pass._arrays.size
        self._shown = None if calls.shown is None else np.flatnonzero(calls.shown)
        self._received_size = size if calls.shown is None else len(calls.shown)
        if calls.shown is not None and len(self._shown) != size:
            raise ValueError(f"{len(self._shown)} numbers are shown, but an observation has {size}")
        result = self._network.result
        if calls.action_type == result.dtype:
            self._actions = result
        elif calls.action_type == np.float64:
            self._actions = self._float64_actions = result.astype(np.float64)

    def __call__(self, long slots, long step, long most, bint samples, bint normalizes):
        """Step the first slots until an episode is over, `most` times at most.  Returns the number of steps.

        step: number of the last step made.  samples: whether any slot's observations are summed up.
        """
        cdef const observation_pass *observations = &self._observation_pass._arrays
        cdef const float *inputs = observations.inputs if normalizes else observations.observations
        cdef head *head = &self._network._head
        cdef bint has_parts = head.ending == PARTS
        cdef const float *chosen = head.actions if has_parts else head.outputs
        cdef long made = 0, ended = 0, k
        cdef long numbers = slots * (head.action_width if has_parts else head.width)
        cdef double *actions = NULL if self._float64_actions is None else &self._float64_actions[0, 0]
        if self._message is None or slots != len(self._message[0]):
            raise RuntimeError("call prepare with the batch whose episodes are in the slots first")
        send, receive, message = self.calls.send, self.calls.receive, self._message
        while made < most and not ended:
            if samples or normalizes:
                mpies_observe(observations, slots, normalizes)
            self._network.run(inputs, slots)
            mpies_decide(head, slots)
            if actions != NULL:
                for k in range(numbers):
                    actions[k] = chosen[k]
            send(message)
            self._take(receive(), slots)
            made += 1
            ended = mpies_score(&self._reward_pass._arrays, slots, step + made)
        return made

    cdef int _take(self, list received, long slots) except -1:
        """Copy what was received into the player's arrays, each episode's to its slot."""
        cdef Py_buffer parts[4]  # observations, rewards, ends, places
        cdef float *observations = self._observation_pass._arrays.observations
        cdef double *rewards = self._reward_pass._arrays.rewards
        cdef uint8_t *over = self._reward_pass._arrays.over
        cdef long size = self._observation_pass._arrays.size, row, slot
        cdef const char *values
        cdef const int64_t *shown = NULL if self._shown is None else &self._shown[0]
        cdef int number, opened = 0
        try:
            for number in range(4):
                PyObject_GetBuffer(received[self._at[number]], &parts[number], PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
                opened += 1
                _check_part(&parts[number], PART_TYPES[number], slots * (1 if number else self._received_size))
            for row in range(slots):
                slot = _find((<int32_t *>parts[3].buf)[row], &self._expected_places[0], row, slots)
                values = <const char *>parts[0].buf + row * self._received_size * parts[0].itemsize
                if parts[0].format[0] == c"f":
                    _copy(<const float *>values, shown, observations + slot * size, size)
                elif parts[0].format[0] == c"d":
                    _copy(<const double *>values, shown, observations + slot * size, size)
                else:
                    _copy(<const uint8_t *>values, shown, observations + slot * size, size)
                if parts[1].format[0] == c"f":
                    rewards[slot] = (<float *>parts[1].buf)[row]
                else:
                    rewards[slot] = (<double *>parts[1].buf)[row]
                over[slot] = (<uint8_t *>parts[2].buf)[row]
        finally:
            for number in range(opened):
                PyBuffer_Release(&parts[number])
        return 0


ctypedef fused number_t:
    float
    double
    uint8_t


cdef void _copy(const number_t *values, const int64_t *shown, float *out, long size) noexcept nogil:
    """Write an observation, or the numbers of it that are shown, as (size,) float."""
    cdef long k
    if shown == NULL:
        for k in range(size):
            out[k] = <float>values[k]
    else:
        for k in range(size):
            out[k] = <float>values[shown[k]]


cdef const char *PART_TYPES[4]  # of observations, rewards, ends and places, as `struct` writes them
PART_TYPES[:] = [b"fdB", b"fd", b"?", b"i"]


cdef int _check_part(const Py_buffer *part, const char *types, long numbers) except -1:
    if strchr(types, part.format[0]) == NULL or part.len != numbers * part.itemsize:
        raise TypeError(
            f"EnvPool returned {part.len} bytes of type {part.format.decode()}, "
            f"but {numbers} numbers of type {' or '.join(types.decode())} were expected"
        )
    return 0


cdef long _find(int32_t place, const int32_t *places, long guess, long count) except -1:
    """Index of the place among the first `count`; it is most likely the guess."""
    cdef long index
    if places[guess] == place:
        return guess
    for index in range(count):
        if places[index] == place:
            return index
    raise RuntimeError(f"EnvPool returned environment {place}, which was not sent")


cdef int _check_count(long slots, Py_ssize_t most) except -1:
    if not 0 <= slots <= most:
        raise ValueError(f"there are {most} slots, not {slots}")
    return 0


def _check_shapes(shape, *arrays):
    for array in arrays:
        if np.shape(array) != shape:
            raise ValueError(f"an array has shape {np.shape(array)}, but {shape} was expected")
