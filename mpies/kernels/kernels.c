/* The inner loop of rollouts in C.  Compile it with -O3 -ffp-contract=off.
 *
 * NumPy computes the same bits where this is not compiled: mpies/policies/exported.py defines the arithmetic of
 * networks, mpies/rollouts/player.py that of observations and rewards.  Therefore every sum is added up in the order
 * of its terms and every product and sum is rounded by itself: no fused multiply-add and no other order.  Then neither
 * the width of the vectors nor the processor changes a bit.
 */
#include "kernels.h"

#include <math.h>
#include <string.h>

#ifdef __FAST_MATH__
#error "sums must keep their order: compile without -ffast-math"
#endif

#define MOST_UNITS 1024
#define MOST_GATES 4
#define AHEAD 1536 /* floats of weights that are prefetched */
#define TILE 8 /* patches of an image that are computed side by side */

#define NAME any_processor
#define WIDTH 4
#define ACCUMULATORS 10
#include "networks.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("avx2")
#define NAME with_avx2
#define WIDTH 8
#include "networks.h"
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw")
#define NAME with_avx512
#define WIDTH 16
#undef ACCUMULATORS
#define ACCUMULATORS 16 /* as there are twice as many registers */
#include "networks.h"
#pragma GCC pop_options
#define HAS(feature) __builtin_cpu_supports(feature)
#define CALL(NETWORK, ...)                                                                                             \
    switch (lanes_for(net->stride)) {                                                                                  \
    case 16:                                                                                                           \
        with_avx512_##NETWORK(__VA_ARGS__);                                                                            \
        break;                                                                                                         \
    case 8:                                                                                                            \
        with_avx2_##NETWORK(__VA_ARGS__);                                                                              \
        break;                                                                                                         \
    default:                                                                                                           \
        any_processor_##NETWORK(__VA_ARGS__);                                                                          \
    }
#else
#define HAS(feature) 0
#define CALL(NETWORK, ...) any_processor_##NETWORK(__VA_ARGS__);
#endif

long mpies_lanes = 16;

/* Wide vectors lower the clock of many Intel cores for most of a millisecond, and slow the simulator by up to a fifth.
 * For small networks that is more than they save. */
long mpies_wide_from = 16384;

/* SIMD lanes for networks of `stride` parameters. */
static inline long lanes_for(long stride)
{
    if (stride < mpies_wide_from)
        return 4;
    if (mpies_lanes >= 16 && HAS("avx512f") && HAS("avx512dq") && HAS("avx512vl") && HAS("avx512bw"))
        return 16;
    return mpies_lanes >= 8 && HAS("avx2") ? 8 : 4;
}

long mpies_most_units(void) { return MOST_UNITS; }

void mpies_run_perceptrons(const struct perceptrons *net, long members) { CALL(perceptrons, net, members) }

void mpies_run_recurrent(const struct recurrent *net, long members) { CALL(recurrent, net, members) }

void mpies_run_convolutions(const struct convolutions *net, long members) { CALL(convolutions, net, members) }

void mpies_refer(const struct convolutions *net, long member) { CALL(refer, net, member) }

/* An output clipped as NumPy does: NaN stays NaN. */
static inline float clip_one(float y, float low, float high)
{
    y = y > low || y != y ? y : low;
    return y < high || y != y ? y : high;
}

static void clip(const struct head *head, long members)
{
    for (long member = 0; member < members; member++)
        for (long k = 0; k < head->width; k++) {
            float *y = head->outputs + member * head->width + k;
            *y = clip_one(*y, head->low[k], head->high[k]);
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

static void find_largest(const struct head *head, long members)
{
    for (long member = 0; member < members; member++)
        head->largest[member] = index_of_largest(head->outputs + member * head->width, head->width);
}

static void join_parts(const struct head *head, long members)
{
    const float *y = head->outputs;
    float *action = head->actions;
    for (long member = 0; member < members; member++) {
        const float *low = head->low, *high = head->high;
        for (long part = 0; part < head->part_count; part++) {
            long count = head->parts[2 * part + 1];
            switch (head->parts[2 * part]) {
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

void mpies_decide(const struct head *head, long members)
{
    if (head->ending == CLIPPED)
        clip(head, members);
    else if (head->ending == LARGEST)
        find_largest(head, members);
    else if (head->ending == PARTS)
        join_parts(head, members);
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
