# The networks of many members as classes; compiled.pyx includes this file.


def _is_in_rows(first_weights):
    """Whether the weights (in, out) of a member are contiguous, and members a whole number of floats apart."""
    strides = first_weights.strides
    return first_weights.dtype == np.float32 and strides[1:] == (4 * first_weights.shape[2], 4) and not strides[0] % 4


def _stride(first_weights, long parameters):
    """Floats from one member to the next; of a single one, which has no next, its `parameters`."""
    return first_weights.strides[0] // sizeof(float) if first_weights.shape[0] > 1 else parameters


cdef class CompiledNetwork:
    """A Network (mpies.policies.base) whose calls can also make the actions.

    The first layer's weights in a stack of parameters are (n, in, out) float32; the rest of each row follows them.
    states: as of Network.  result: the array whose rows a call returns.
    """

    cdef head _head
    cdef long _inputs
    cdef const float[:, :, :] _first_weights
    cdef float[:, ::1] _outputs
    cdef const float[::1] _low, _high
    cdef int32_t[::1] _largest
    cdef const int64_t[:, ::1] _parts
    cdef float[:, ::1] _actions
    cdef readonly object result
    cdef readonly tuple states

    def __init__(self, const float[:, :, :] first_weights, long inputs, long outputs):
        self.states = ()
        self.result = np.empty((first_weights.shape[0], outputs), np.float32)
        self._first_weights, self._outputs, self._inputs = first_weights, self.result, inputs
        self._head.outputs, self._head.width = &self._outputs[0, 0], outputs

    cdef void run(self, const float *inputs, long members) noexcept nogil:
        """Compute the outputs of the first members for inputs (members, in)."""

    def clip_outputs(self, low, high):
        """From now on calls return the outputs clipped to low and high (outputs,)."""
        self._low, self._high = (np.array(bound, np.float32) for bound in (low, high))
        if not self._low.shape[0] == self._high.shape[0] == self._outputs.shape[1]:
            raise ValueError(f"bounds must have {self._outputs.shape[1]} numbers")
        self._head.low, self._head.high, self._head.ending = &self._low[0], &self._high[0], CLIPPED

    def choose_largest(self):
        """From now on calls return the index (m,) int32 of each member's largest output."""
        self.result = np.zeros(self._outputs.shape[0], np.int32)
        self._largest = self.result
        self._head.largest, self._head.ending = &self._largest[0], LARGEST

    def choose_parts(self, parts, low, high):
        """From now on calls return the actions (m, a) float32 that the outputs make part by part.

        parts: of each (a name in PARTS_OF_ACTIONS, how many outputs it takes).  Continuous ones are clipped,
        Discrete ones take the index of the largest output, and Binary ones are 1 where the output is above 0.
        low, high: (outputs,) bounds of the continuous ones.
        """
        self.clip_outputs(low, high)
        self._parts = np.array([(PARTS_OF_ACTIONS.index(kind), count) for kind, count in parts], np.int64)
        if min(count for _, count in parts) < 1 or sum(count for _, count in parts) != self._outputs.shape[1]:
            raise ValueError(f"the parts must take {self._outputs.shape[1]} outputs in all, and each at least one")
        width = sum(1 if kind == "Discrete" else count for kind, count in parts)
        self.result = np.zeros((self._outputs.shape[0], width), np.float32)
        self._actions = self.result
        self._head.parts, self._head.actions = &self._parts[0, 0], &self._actions[0, 0]
        self._head.part_count, self._head.action_width, self._head.ending = len(parts), width, PARTS

    def begin(self, slot):
        """Begin an episode in a slot."""

    def __call__(self, inputs):
        """Outputs, or actions, of the first m members for inputs (m, in) float32.  The next call overwrites them."""
        cdef const float[:, ::1] rows = np.ascontiguousarray(inputs, np.float32)
        cdef const float *first
        cdef long members = rows.shape[0]
        if members > self._outputs.shape[0] or rows.shape[1] != self._inputs:
            raise ValueError(f"inputs must have {self._inputs} columns and at most {self._outputs.shape[0]} rows")
        if members:
            first = &rows[0, 0]
            with nogil:
                self.run(first, members)
                mpies_decide(&self._head, members)
        return self.result[:members]


@cython.final
cdef class Perceptrons(CompiledNetwork):
    """Perceptrons.  They have no state.

    widths: number of inputs and units of each layer.  activation: of all layers but the last.
    """

    cdef perceptrons _net
    cdef int64_t[::1] _widths

    def __init__(self, const float[:, :, :] first_weights, widths, bint has_biases, str activation):
        CompiledNetwork.__init__(self, first_weights, widths[0], widths[-1])
        self._widths = np.array(widths, np.int64)
        self._net.widths = &self._widths[0]
        self._net.stack, self._net.outputs = &first_weights[0, 0, 0], &self._outputs[0, 0]
        self._net.layers = len(widths) - 1
        self._net.stride = _stride(first_weights, sum(rows * columns for rows, columns in pairwise(widths)))
        self._net.has_biases, self._net.activation = has_biases, ACTIVATIONS.index(activation)

    @staticmethod
    def can_compute(first_weights, widths):
        """Whether perceptrons with these arguments fit the memory layout and the sizes that the C code expects."""
        return _is_in_rows(first_weights) and max(widths[1:-1], default=0) <= mpies_most_units()

    cdef void run(self, const float *inputs, long members) noexcept nogil:
        self._net.inputs = inputs
        mpies_run_perceptrons(&self._net, members)


@cython.final
cdef class Recurrent(CompiledNetwork):
    """A layer of recurrent units, then a dense one.

    kind: in RECURRENT_KINDS.  states: the units' values (n, units), and of an LSTM its cells (n, units).
    """

    cdef recurrent _net
    cdef float[:, ::1] _unit_values, _cells

    def __init__(self, const float[:, :, :] first_weights, str kind, long units, long outputs):
        CompiledNetwork.__init__(self, first_weights, first_weights.shape[1], outputs)
        members = first_weights.shape[0]
        self.states = tuple(np.zeros((members, units), np.float32) for _ in range(2 if kind == "lstm" else 1))
        self._unit_values, self._cells = self.states[0], self.states[-1]
        self._net.stack, self._net.outputs = &first_weights[0, 0, 0], &self._outputs[0, 0]
        self._net.unit_values, self._net.cells = &self._unit_values[0, 0], &self._cells[0, 0]
        self._net.kind, self._net.units = RECURRENT_KINDS.index(kind), units
        self._net.inputs_per_member, self._net.outputs_per_member = first_weights.shape[1], outputs
        self._net.stride = first_weights.strides[0] // sizeof(float)

    @staticmethod
    def can_compute(first_weights, units):
        """Whether networks with these arguments fit the memory layout and the sizes that the C code expects."""
        return _is_in_rows(first_weights) and units <= mpies_most_units()

    def begin(self, long slot):
        """Begin an episode in a slot: its units are 0."""
        self._unit_values[slot] = 0
        self._cells[slot] = 0

    cdef void run(self, const float *inputs, long members) noexcept nogil:
        self._net.inputs = inputs
        mpies_run_recurrent(&self._net, members)


@cython.final
cdef class Convolutions(CompiledNetwork):
    """Convolutions and dense layers.

    images: (height, width, channels) of what each convolution sees.  convolutions: (filters, size, stride) of each.
    dense: units of each hidden dense layer.  activation: of the hidden layers.
    reference: (k, in) uint8, the images that the hidden layers are normalised on; None for layers with biases instead.
    states: with a reference, for each hidden layer an array (n, 2, patches * units) of its factors and offsets.
    """

    cdef convolutions _net
    cdef const int64_t[:, ::1] _layers
    cdef float[::1] _factors, _image
    cdef float[:, ::1] _buffers
    cdef double[::1] _moments
    cdef int32_t[::1] _nonzero
    cdef const uint8_t[:, ::1] _reference

    def __init__(self, const float[:, :, :] first_weights, images, convolutions, dense, long outputs, str activation,
                 reference=None):
        height, width, channels = images[0]
        pixels, members, has_factors = height * width, first_weights.shape[0], reference is not None
        CompiledNetwork.__init__(self, first_weights, channels * pixels, outputs)
        self._layers = layers = _tabulate_layers(images, convolutions, dense)
        sizes = [int(down * across * units) for down, across, *_, units, _ in layers]
        rows = layers[:, 4] * layers[:, 5]
        most, frames = max(sizes), len(reference) if has_factors else 1
        self._image = np.empty(channels * pixels, np.float32)
        self._buffers = np.zeros((2, frames * most + MOST_LANES), np.float32)
        self._moments = np.empty(2 * most)
        self._nonzero = np.empty(rows.max(), np.int32)
        factors = np.zeros((members, 2 * sum(sizes)), np.float32)
        self._factors = factors.reshape(-1)
        if has_factors:
            self._reference = np.ascontiguousarray(reference, np.uint8)
            if self._reference.shape[1] != self._inputs:
                raise ValueError(f"images of the reference must have {self._inputs} numbers")
            self._net.reference, self._net.reference_count = &self._reference[0, 0], frames
            ends = np.cumsum([2 * size for size in sizes])
            parts = np.split(factors, ends[:-1], axis=1)
            self.states = tuple(part.reshape(members, 2, -1) for part in parts)
        self._net.layers, self._net.hidden = <const layer *>&self._layers[0, 0], len(layers)
        self._net.stack, self._net.outputs = &first_weights[0, 0, 0], &self._outputs[0, 0]
        self._net.factors, self._net.factors_per_member = &self._factors[0], factors.shape[1]
        self._net.image, self._net.moments = &self._image[0], &self._moments[0]
        self._net.nonzero = &self._nonzero[0]
        self._net.buffers[0], self._net.buffers[1] = &self._buffers[0, 0], &self._buffers[1, 0]
        self._net.stride = _stride(first_weights, int(rows @ layers[:, 7]))
        self._net.channels, self._net.pixels, self._net.last_inputs = channels, pixels, sizes[-1]
        self._net.outputs_per_member, self._net.has_factors = outputs, has_factors
        self._net.activation = ACTIVATIONS.index(activation)

    @staticmethod
    def can_compute(first_weights):
        """Whether networks with these weights fit the memory layout that the C code expects."""
        return _is_in_rows(first_weights)

    def begin(self, long slot):
        """Begin an episode in a slot: find its factors and offsets on the reference."""
        _check_count(slot, self._outputs.shape[0] - 1)
        if self._net.has_factors:
            with nogil:
                mpies_refer(&self._net, slot)

    cdef void run(self, const float *inputs, long members) noexcept nogil:
        self._net.inputs = inputs
        mpies_run_convolutions(&self._net, members)


def _tabulate_layers(images, convolutions, dense):
    """The hidden layers (l, 9) int64, each as `struct layer` of kernels.h."""
    layers = []
    for (height, width, channels), (filters, size, stride) in zip(images, convolutions, strict=True):
        down, across = ((length - size) // stride + 1 for length in (height, width))
        steps = stride * width * channels, stride * channels
        runs = size, size * channels, width * channels
        layers.append((down, across, *steps, *runs, filters, height * width * channels))
        inputs = down * across * filters
    for units in dense:
        layers.append((1, 1, 0, 0, 1, inputs, 0, units, inputs))
        inputs = units
    return np.array(layers, np.int64)
