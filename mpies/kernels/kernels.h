/* What kernels.c computes, for compiled.pyx.  All arrays are contiguous, last axis fastest. */
#ifndef MPIES_KERNELS_H
#define MPIES_KERNELS_H

#include <stdint.h>

enum activation { LINEAR, TANH, RELU, LRELU, ELU };
enum units { LSTM, GRU, ELMAN };
enum ending { NONE, CLIPPED, LARGEST, PARTS };
enum part { NUMBERS, CHOICE, SIGNS };

/* The networks of several members, all of one shape.  In each of them
 *
 * stack: for each member a row of `stride` floats, its parameters.
 * inputs: (members, inputs).  outputs: (members, outputs). */

/* Perceptrons.
 *
 * widths: (layers + 1), number of inputs and units of each layer.
 * stack: of each layer the weights (in, out), then, if has_biases, the biases (out).
 * activation: of all layers but the last. */
struct perceptrons {
    const int64_t *widths;
    const float *stack, *inputs;
    float *outputs;
    long layers, stride, has_biases, activation;
};

/* A layer of recurrent units, then a dense one.
 *
 * stack: weights (inputs, gates * units) and (units, gates * units), biases (gates * units), of GRU the biases (units) of
 *     what candidates take from the units' values, then weights (units, outputs) and biases (outputs).
 * unit_values: (members, units).  cells: (members, units), of LSTM. */
struct recurrent {
    const float *stack, *inputs;
    float *outputs, *unit_values, *cells;
    long kind, inputs_per_member, units, outputs_per_member, stride;
};

/* A hidden layer of a network for images.  It multiplies patches of its input by its weights (runs * run, units).
 *
 * down, across: how many patches there are.  A dense layer has one.
 * down_step, across_step: floats from a patch to the next one below, and to the right.
 * runs, run, gap: a patch is so many runs of so many floats, whose beginnings are `gap` floats apart.
 * input_size: floats of an input. */
struct layer {
    int64_t down, across, down_step, across_step, runs, run, gap, units, input_size;
};

/* Convolutions, then dense layers, for images.
 *
 * layers: (hidden), the hidden ones.
 * stack: of each hidden layer the weights and shifts (units), and if has_factors the scales (units); then weights
 *     (last_inputs, outputs) and biases (outputs).
 * inputs: (members, channels, pixels) from 0 to 255.
 * activation: of the hidden layers.
 * factors: (members, factors_per_member), for each hidden layer factors (patches, units), then offsets of this shape,
 *     with which it is normalised.  Without has_factors the shifts are added instead.
 * reference: (reference_count, channels, pixels), images on which the units of a layer are normalised.
 * image, buffers, moments, nonzero: memory to work in: for an image, for two layers' units on all images of the
 *     reference, with room for one more vector, for two numbers of each unit of a layer, and for one of each. */
struct convolutions {
    const struct layer *layers;
    const float *stack, *inputs;
    float *outputs, *factors;
    const uint8_t *reference;
    float *image, *buffers[2];
    double *moments;
    int32_t *nonzero;
    long hidden, stride, channels, pixels, last_inputs, outputs_per_member, activation, has_factors;
    long factors_per_member, reference_count;
};

/* How outputs (members, width) become actions.
 *
 * ending: NONE leaves the outputs as they are, CLIPPED clips them to low and high (width), and LARGEST writes
 *     the index of each member's largest output into largest (members).  PARTS writes actions (members, action_width)
 *     part by part: outputs clipped, the index of the largest, or 1 for each output above 0 and else 0.
 * parts: (part_count, 2), the kind of each part and how many outputs it takes. */
struct head {
    float *outputs;
    const float *low, *high;
    int32_t *largest;
    const int64_t *parts;
    float *actions;
    long width, ending, part_count, action_width;
};

/* The observations that slots have received.
 *
 * observations, centres, scales, inputs: (slots, size).  sums: (slots, 2, size).  sampled: (slots), booleans.
 * clip: bound on normalised observations. */
struct observation_pass {
    float *observations;
    const float *centres, *scales;
    float *inputs;
    double *sums;
    const uint8_t *sampled;
    long size;
    float clip;
};

/* The rewards that slots have received.
 *
 * rewards: (slots), of the newest step.  totals: (slots), their sums.  signs: (slots), sums of their signs, or a null
 *     pointer if these are not wanted.
 * begun: (slots), the step before each episode's first.  limits: (slots), steps after which an episode ends.
 * over: (slots), booleans, whether the episode has ended. */
struct reward_pass {
    double *rewards, *totals, *signs;
    const int64_t *begun, *limits;
    uint8_t *over;
};

/* For tests: SIMD lanes of the widest vectors to use where the processor has them (4, 8 or 16), and from how many
 * parameters of a member they are used. */
extern long mpies_lanes, mpies_wide_from;

/* Units of the largest layer that mpies_run_perceptrons and mpies_run_recurrent can compute. */
long mpies_most_units(void);

/* Compute the outputs of the first `members` members; recurrent units take a step. */
void mpies_run_perceptrons(const struct perceptrons *net, long members);
void mpies_run_recurrent(const struct recurrent *net, long members);
void mpies_run_convolutions(const struct convolutions *net, long members);

/* Find the factors and offsets of a member: each layer's mean is then 0 and its deviation 1 on the reference, times the
 * scales and plus the shifts. */
void mpies_refer(const struct convolutions *net, long member);

/* Make actions of the outputs of the first `members` members. */
void mpies_decide(const struct head *head, long members);

/* For the first `slots` slots: add the observations and their squares to the sums where sampled; if normalizes, write
 * (observation - centre) / scale, clipped to +- clip, into inputs. */
void mpies_observe(const struct observation_pass *pass, long slots, long normalizes);

/* For the first `slots` slots: add rewards and signs to their sums, and end episodes at their limits.
 * step: number of the newest step.  Returns how many episodes are over. */
long mpies_score(const struct reward_pass *pass, long slots, long step);

#endif
