/* The inner loop of rollouts in C.  Compile it with -O3 -ffp-contract=off.
 *
 * NumPy computes the same bits where this is not compiled: mpies/policies/exported.py defines the arithmetic of a
 * perceptron, mpies/rollouts/player.py that of observations and rewards.  Therefore every sum is added up in the order
 * of its terms and every product and sum is rounded by itself: no fused multiply-add and no other order.  Then neither
 * the width of the vectors nor the processor changes a bit.
 */
#include "kernels.h"

#include <string.h>

#ifdef __FAST_MATH__
#error "sums must keep their order: compile without -ffast-math"
#endif

#define MOST_UNITS 1024
#define ACCUMULATORS 10

#define NAME any_processor
#define WIDTH 4
#include "perceptron.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("avx2")
#define NAME with_avx2
#define WIDTH 8
#include "perceptron.h"
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw")
#define NAME with_avx512
#define WIDTH 16
#include "perceptron.h"
#pragma GCC pop_options
#define HAS(feature) __builtin_cpu_supports(feature)
#endif

long mpies_lanes = 16;

/* Wide vectors lower the clock of many Intel cores for most of a millisecond, and slow the simulator by up to a fifth.
 * For small networks that is more than they save. */
long mpies_wide_from = 16384;

long mpies_most_units(void) { return MOST_UNITS; }

/* An output clipped as NumPy does: NaN stays NaN. */
static inline float clip_one(float y, float low, float high)
{
    y = y > low || y != y ? y : low;
    return y < high || y != y ? y : high;
}

static void clip(const struct perceptrons *mlp, long members)
{
    long width = mlp->widths[mlp->layers];
    for (long member = 0; member < members; member++)
        for (long k = 0; k < width; k++) {
            float *y = mlp->outputs + member * width + k;
            *y = clip_one(*y, mlp->low[k], mlp->high[k]);
        }
}

/* The index of the largest output as NumPy's argmax has it: the first of equal ones, or the first NaN if there is one. */
static inline int index_of_largest(const float *y, long width)
{
    int best = 0;
    for (int k = 1; k < width && y[best] == y[best]; k++)
        if (y[k] > y[best] || y[k] != y[k])
            best = k;
    return best;
}

static void find_largest(const struct perceptrons *mlp, long members)
{
    long width = mlp->widths[mlp->layers];
    for (long member = 0; member < members; member++)
        mlp->largest[member] = index_of_largest(mlp->outputs + member * width, width);
}

static void join_parts(const struct perceptrons *mlp, long members)
{
    const float *y = mlp->outputs;
    float *action = mlp->actions;
    for (long member = 0; member < members; member++) {
        const float *low = mlp->low, *high = mlp->high;
        for (long part = 0; part < mlp->part_count; part++) {
            long count = mlp->parts[2 * part + 1];
            switch (mlp->parts[2 * part]) {
            case NUMBERS:
                for (long k = 0; k < count; k++)
                    *action++ = clip_one(y[k], low[k], high[k]);
                break;
            case CHOICE:
                *action++ = index_of_largest(y, count);
                break;
            case SIGNS:
                for (long k = 0; k < count; k++)
                    *action++ = y[k] > 0;
                break;
            }
            y += count, low += count, high += count;
        }
    }
}

void mpies_forward(const struct perceptrons *mlp, long members)
{
#ifdef HAS
    if (mlp->stride < mpies_wide_from)
        any_processor(mlp, members);
    else if (mpies_lanes >= 16 && HAS("avx512f") && HAS("avx512dq") && HAS("avx512vl") && HAS("avx512bw"))
        with_avx512(mlp, members);
    else if (mpies_lanes >= 8 && HAS("avx2"))
        with_avx2(mlp, members);
    else
#endif
        any_processor(mlp, members);
    if (mlp->ending == CLIPPED)
        clip(mlp, members);
    else if (mlp->ending == LARGEST)
        find_largest(mlp, members);
    else if (mlp->ending == PARTS)
        join_parts(mlp, members);
}

void mpies_observe(const struct observation_pass *pass, long slots, long normalizes)
{
    for (long slot = 0; slot < slots; slot++) {
        const float *observation = pass->observations + slot * pass->size;
        if (pass->sampled[slot]) {
            double *totals = pass->sums + 2 * slot * pass->size, *squares = totals + pass->size;
            for (long k = 0; k < pass->size; k++) {
                totals[k] += observation[k];
                squares[k] += (double)observation[k] * observation[k];
            }
        }
        if (normalizes) {
            const float *centres = pass->centres + slot * pass->size, *scales = pass->scales + slot * pass->size;
            float *inputs = pass->inputs + slot * pass->size;
            for (long k = 0; k < pass->size; k++) {
                float x = (observation[k] - centres[k]) / scales[k];
                x = x > pass->clip ? pass->clip : x;
                inputs[k] = x < -pass->clip ? -pass->clip : x;
            }
        }
    }
}

long mpies_score(const struct reward_pass *pass, long slots, long step)
{
    long ended = 0;
    for (long slot = 0; slot < slots; slot++) {
        double reward = pass->rewards[slot];
        pass->totals[slot] += reward;
        if (pass->signs)
            pass->signs[slot] += reward > 0 ? 1 : reward < 0 ? -1 : reward;
        pass->over[slot] |= step - pass->begun[slot] >= pass->limits[slot];
        ended += pass->over[slot];
    }
    return ended;
}
