/* The layers that networks are made of, with vectors of WIDTH floats.  networks.h includes this file. */

typedef float LOCAL(vector) __attribute__((vector_size(4 * WIDTH)));
typedef int LOCAL(mask) __attribute__((vector_size(4 * WIDTH)));

/* Compute columns first .. first + width - 1 of a layer in `count` vectors of LANES floats.  Where `width` is no multiple
 * of LANES, the last vector overlaps the one before.
 * listed: null for all rows, or the indices (rows) of those that are added up.  These are prefetched, as the processor
 *     does not foresee them. */
#define COLUMNS(LANES)                                                                                                 \
    INLINE void LOCAL(JOIN(columns, LANES))(const float *x, const int32_t *listed, const float *weights,               \
                                            const float *biases, float *y, long rows, long columns, long first,        \
                                            long width, const int count)                                               \
    {                                                                                                                  \
        LOCAL(JOIN(vector, LANES)) sums[ACCUMULATORS], w;                                                              \
        long at[ACCUMULATORS], ahead = AHEAD / width;                                                                  \
        for (int k = 0; k < count; k++) {                                                                              \
            at[k] = first + (k < count - 1 ? k * LANES : width - LANES);                                               \
            sums[k] = (LOCAL(JOIN(vector, LANES))){0};                                                                 \
            if (biases)                                                                                                \
                memcpy(&sums[k], biases + at[k], sizeof w);                                                            \
        }                                                                                                              \
        for (long i = 0; i < rows; i++) {                                                                              \
            long row = listed ? listed[i] : i;                                                                         \
            if (listed)                                                                                                \
                for (int k = 0; k < count; k++)                                                                        \
                    __builtin_prefetch(weights + listed[i + ahead < rows ? i + ahead : i] * columns + at[k]);          \
            for (int k = 0; k < count; k++) {                                                                          \
                memcpy(&w, weights + row * columns + at[k], sizeof w);                                                 \
                sums[k] += x[row] * w;                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
        for (int k = 0; k < count; k++)                                                                                \
            memcpy(y + at[k], &sums[k], sizeof w);                                                                     \
    }
typedef float LOCAL(vector1); /* a vector type of one float would go through memory with every sum */
COLUMNS(1)
typedef float LOCAL(vector4) __attribute__((vector_size(16)));
COLUMNS(4)
#if WIDTH >= 8
typedef float LOCAL(vector8) __attribute__((vector_size(32)));
COLUMNS(8)
#endif
#if WIDTH >= 16
typedef float LOCAL(vector16) __attribute__((vector_size(64)));
COLUMNS(16)
#endif

/* y = x @ weights + biases, for one member.  listed: as of COLUMNS. */
INLINE void LOCAL(dense_listed)(const float *x, const int32_t *listed, const float *weights, const float *biases, float *y,
                                long rows, long columns)
{
#define DO(LANES, COUNT)                                                                                               \
    case COUNT:                                                                                                        \
        LOCAL(JOIN(columns, LANES))(x, listed, weights, biases, y, rows, columns, first, width, COUNT);                \
        break
    for (long first = 0, width; first < columns; first += width) {
        width = columns - first < ACCUMULATORS * WIDTH ? columns - first : ACCUMULATORS * WIDTH;
        if (width >= WIDTH)
            switch ((width + WIDTH - 1) / WIDTH) {
                DO(WIDTH, 1);
                DO(WIDTH, 2);
                DO(WIDTH, 3);
                DO(WIDTH, 4);
                DO(WIDTH, 5);
                DO(WIDTH, 6);
                DO(WIDTH, 7);
                DO(WIDTH, 8);
                DO(WIDTH, 9);
                DO(WIDTH, 10);
#if WIDTH >= 16
                DO(WIDTH, 11);
                DO(WIDTH, 12);
                DO(WIDTH, 13);
                DO(WIDTH, 14);
                DO(WIDTH, 15);
                DO(WIDTH, 16);
#endif
            }
#if WIDTH >= 16
        else if (width >= 8)
            switch ((width + 7) / 8) {
                DO(8, 1);
                DO(8, 2);
            }
#endif
        else if (width >= 4)
            switch ((width + 3) / 4) {
                DO(4, 1);
                DO(4, 2);
            }
        else
            switch (width) {
                DO(1, 1);
                DO(1, 2);
                DO(1, 3);
            }
    }
#undef DO
}

/* y = x @ weights + biases, for one member. */
INLINE void LOCAL(dense)(const float *x, const float *weights, const float *biases, float *y, long rows, long columns)
{
    LOCAL(dense_listed)(x, 0, weights, biases, y, rows, columns);
}

/* `one` where the mask is set, `other` elsewhere. */
INLINE LOCAL(vector) LOCAL(choose)(LOCAL(mask) where, LOCAL(vector) one, LOCAL(vector) other)
{
    return (LOCAL(vector))((where & (LOCAL(mask))one) | (~where & (LOCAL(mask))other));
}

/* The same rational function as tanh in mpies/policies/exported.py. */
INLINE LOCAL(vector) LOCAL(tanh)(LOCAL(vector) x)
{
    const LOCAL(vector) bound = (LOCAL(vector)){0} + 9.0f;
    x = LOCAL(choose)(x > bound, bound, x);
    x = LOCAL(choose)(x < -bound, -bound, x);
    LOCAL(vector) u = x * x;
    LOCAL(vector)
    numerator = (((1.3355054e-08f * u + 2.06093973e-05f) * u + 0.00349560869f) * u + 0.133810431f) * u + 1.0f;
    LOCAL(vector)
    denominator = (((7.77672824e-07f * u + 0.000328566763f) * u + 0.0258770622f) * u + 0.467143595f) * u + 1.0f;
    return x * numerator / denominator;
}

/* The same as sigmoid in mpies/policies/exported.py. */
INLINE LOCAL(vector) LOCAL(sigmoid)(LOCAL(vector) x) { return LOCAL(tanh)(x * 0.5f) * 0.5f + 0.5f; }

/* Apply the activation in place.  y must have room for a whole number of vectors. */
INLINE void LOCAL(activate)(float *y, long columns, long activation)
{
    for (long at = 0; at < columns; at += WIDTH) {
        LOCAL(vector) x, t;
        memcpy(&x, y + at, sizeof x);
        switch (activation) {
        case TANH:
            x = LOCAL(tanh)(x);
            break;
        case RELU:
            x = LOCAL(choose)(x < 0.0f, (LOCAL(vector)){0}, x);
            break;
        case LRELU:
            x = LOCAL(choose)(x < 0.0f, x * 0.01f, x);
            break;
        case ELU:
            t = LOCAL(tanh)(x * 0.5f);
            x = LOCAL(choose)(x < 0.0f, (t + t) / (1.0f - t), x);
            break;
        }
        memcpy(y + at, &x, sizeof x);
    }
}

#undef COLUMNS
