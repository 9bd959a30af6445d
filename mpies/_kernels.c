/* The inner loop of rollouts, compiled when mpies is installed (-O3 -ffp-contract=off); where it was not, NumPy computes
 * the same bits: rollouts.py says what is looked at, exported_mlp.py what a perceptron is.
 *
 * Every number is one chain of sums and products in the order of its terms, rounded one by one: no fused multiplication
 * and no other order, so that neither the width of the vectors nor the processor changes a bit.
 */
#include <string.h>

#ifdef __FAST_MATH__
#error "sums must keep their order: compile without -ffast-math"
#endif

#define WIDEST 1024 /* units of a hidden layer */
#define ACCUMULATORS 8

enum activation { LINEAR, TANH, RELU, LRELU, ELU };

/* Perceptrons of one shape.  widths: (layers + 1) units.  stack: a row of `stride` floats for each member: weights
 * (in, out) and, if has_biases, biases (out) of each layer.  inputs: (members, widths[0]).
 * outputs: (members, widths[layers]).  activation: of all layers but the last. */
struct perceptrons {
    const long *widths;
    const float *stack, *inputs;
    float *outputs;
    long layers, stride, has_biases, activation;
};

#define NAME any_processor
#define WIDTH 4
#include "_perceptron.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("avx2")
#define NAME with_avx2
#define WIDTH 8
#include "_perceptron.h"
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw")
#define NAME with_avx512
#define WIDTH 16
#include "_perceptron.h"
#pragma GCC pop_options
#define HAS(feature) __builtin_cpu_supports(feature)
#endif

/* Lanes of the widest vectors to use, where the processor has them. */
long mpies_lanes = 16;

/* Parameters of a member from which they are used.  Wide vectors lower the clock of many Intel cores for most of a
 * millisecond, and with it the simulator's speed by up to a fifth: more than they save where networks are small. */
long mpies_large = 16384;

/* The largest hidden layer there is room for. */
long mpies_widest(void) { return WIDEST; }

/* Outputs of the first `members`. */
void mpies_forward(const struct perceptrons *of, long members)
{
#ifdef HAS
    if (of->stride < mpies_large)
        any_processor(of, members);
    else if (mpies_lanes >= 16 && HAS("avx512f") && HAS("avx512dq") && HAS("avx512vl") && HAS("avx512bw"))
        with_avx512(of, members);
    else if (mpies_lanes >= 8 && HAS("avx2"))
        with_avx2(of, members);
    else
#endif
        any_processor(of, members);
}

/* What lanes see.  observations, centres, scales, inputs: (lanes, size).  sums: (lanes, 2, size), of observations and of
 * their squares, of those lanes that are sampled.  inputs: the observations, normalised and clipped to +- clip. */
struct sight {
    const float *observations, *centres, *scales;
    float *inputs;
    double *sums;
    const unsigned char *sampled;
    long size;
    float clip;
};

void mpies_look(const struct sight *of, long lanes, long normalizes)
{
    for (long lane = 0; lane < lanes; lane++) {
        const float *seen = of->observations + lane * of->size;
        if (of->sampled[lane]) {
            double *totals = of->sums + 2 * lane * of->size, *squares = totals + of->size;
            for (long k = 0; k < of->size; k++) {
                totals[k] += seen[k];
                squares[k] += (double)seen[k] * seen[k];
            }
        }
        if (normalizes) {
            const float *centres = of->centres + lane * of->size, *scales = of->scales + lane * of->size;
            float *inputs = of->inputs + lane * of->size;
            for (long k = 0; k < of->size; k++) {
                float x = (seen[k] - centres[k]) / scales[k];
                x = x > of->clip ? of->clip : x;
                inputs[k] = x < -of->clip ? -of->clip : x;
            }
        }
    }
}

/* What a step brings to lanes.  rewards, totals, signs, begun, limits, over: (lanes,); signs may be 0, for nobody asks. */
struct score {
    const double *rewards;
    double *totals, *signs;
    const long *begun, *limits;
    unsigned char *over;
};

/* Add up rewards and their signs, and end episodes that began `limits` steps ago.  Returns how many are over. */
long mpies_score(const struct score *of, long lanes, long step)
{
    long ended = 0;
    for (long lane = 0; lane < lanes; lane++) {
        double reward = of->rewards[lane];
        of->totals[lane] += reward;
        if (of->signs)
            of->signs[lane] += reward > 0 ? 1 : reward < 0 ? -1 : reward;
        of->over[lane] |= step - of->begun[lane] >= of->limits[lane];
        ended += of->over[lane];
    }
    return ended;
}
