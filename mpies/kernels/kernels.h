/* What kernels.c computes, for compiled.pyx.  All arrays are contiguous, last axis fastest. */
#ifndef MPIES_KERNELS_H
#define MPIES_KERNELS_H

#include <stdint.h>

enum activation { LINEAR, TANH, RELU, LRELU, ELU };
enum ending { NONE, CLIPPED, LARGEST, PARTS };
enum part { NUMBERS, CHOICE, SIGNS };

/* The perceptrons of several members, all of one shape.
 *
 * widths: (layers + 1), number of inputs and units of each layer.
 * stack: for each member a row of `stride` floats: of each layer the weights (in, out), then, if has_biases, the
 *     biases (out).
 * inputs: (members, widths[0]).  outputs: (members, widths[layers]).
 * activation: of all layers but the last.
 * ending: NONE leaves the outputs as they are, CLIPPED clips them to low and high (widths[layers]), and LARGEST writes
 *     the index of each member's largest output into largest (members).  PARTS writes actions (members, action_width)
 *     part by part: outputs clipped, the index of the largest, or 1 for each output above 0 and else 0.
 * parts: (part_count, 2), the kind of each part and how many outputs it takes. */
struct perceptrons {
    const int64_t *widths;
    const float *stack, *inputs;
    float *outputs;
    const float *low, *high;
    int32_t *largest;
    const int64_t *parts;
    float *actions;
    long layers, stride, has_biases, activation, ending, part_count, action_width;
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

/* Units of the largest hidden layer that mpies_forward can compute. */
long mpies_most_units(void);

/* Compute the outputs of the first `members` members. */
void mpies_forward(const struct perceptrons *mlp, long members);

/* For the first `slots` slots: add the observations and their squares to the sums where sampled; if normalizes, write
 * (observation - centre) / scale, clipped to +- clip, into inputs. */
void mpies_observe(const struct observation_pass *pass, long slots, long normalizes);

/* For the first `slots` slots: add rewards and signs to their sums, and end episodes at their limits.
 * step: number of the newest step.  Returns how many episodes are over. */
long mpies_score(const struct reward_pass *pass, long slots, long step);

#endif
