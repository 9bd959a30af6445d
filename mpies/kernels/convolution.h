/* Networks for images, with vectors of WIDTH floats.  networks.h includes this file. */

/* Compute LANES units of a layer for TILE patches.
 * from: the first number of each patch.  to: the first of these units of each patch. */
#define PATCHES(LANES)                                                                                                 \
    INLINE void LOCAL(JOIN(tile, LANES))(const struct layer *layer, const float *const from[], float *const to[],      \
                                         const float *weights, const float *biases)                                    \
    {                                                                                                                  \
        LOCAL(JOIN(vector, LANES)) sums[TILE], w;                                                                      \
        const float *x[TILE];                                                                                          \
        for (int k = 0; k < TILE; k++) {                                                                               \
            x[k] = from[k];                                                                                            \
            sums[k] = (LOCAL(JOIN(vector, LANES))){0};                                                                 \
            if (biases)                                                                                                \
                memcpy(&sums[k], biases, sizeof w);                                                                    \
        }                                                                                                              \
        for (long run = 0; run < layer->runs; run++) {                                                                 \
            for (long at = 0; at < layer->run; at++, weights += layer->units) {                                        \
                memcpy(&w, weights, sizeof w);                                                                         \
                for (int k = 0; k < TILE; k++)                                                                         \
                    sums[k] += x[k][at] * w;                                                                           \
            }                                                                                                          \
            for (int k = 0; k < TILE; k++)                                                                             \
                x[k] += layer->gap;                                                                                    \
        }                                                                                                              \
        for (int k = 0; k < TILE; k++)                                                                                 \
            memcpy(to[k], &sums[k], sizeof w);                                                                         \
    }                                                                                                                  \
    static void LOCAL(JOIN(patches, LANES))(const struct layer *layer, const float *x, long x_size,                    \
                                            const float *weights, const float *biases, float *y, long images)          \
    {                                                                                                                  \
        const float *from[TILE];                                                                                       \
        float *to[TILE];                                                                                               \
        int count = 0;                                                                                                 \
        for (long image = 0; image < images; image++)                                                                  \
            for (long down = 0; down < layer->down; down++)                                                            \
                for (long across = 0; across < layer->across; across++, y += layer->units) {                           \
                    from[count] = x + image * x_size + down * layer->down_step + across * layer->across_step;          \
                    to[count] = y;                                                                                     \
                    if (++count == TILE) {                                                                             \
                        LOCAL(JOIN(tile, LANES))(layer, from, to, weights, biases);                                    \
                        count = 0;                                                                                     \
                    }                                                                                                  \
                }                                                                                                      \
        if (count) { /* the others compute the last one again */                                                       \
            for (int k = count; k < TILE; k++)                                                                         \
                from[k] = from[count - 1], to[k] = to[count - 1];                                                      \
            LOCAL(JOIN(tile, LANES))(layer, from, to, weights, biases);                                                \
        }                                                                                                              \
    }
PATCHES(1)
PATCHES(4)
#if WIDTH >= 8
PATCHES(8)
#endif
#if WIDTH >= 16
PATCHES(16)
#endif

/* y (images, patches, units) = patches of x (images, x_size) @ weights + biases.
 * A dense layer leaves out the rows of weights for inputs that are 0, about half of them after a ReLU: they add nothing,
 * and most of its time goes into reading weights.
 * nonzero: memory for the indices of the others. */
INLINE void LOCAL(multiply)(const struct layer *layer, const float *x, long x_size, const float *weights,
                            const float *biases, float *y, long images, int32_t *nonzero)
{
    long units = layer->units, lanes = units >= WIDTH ? WIDTH : WIDTH >= 16 && units >= 8 ? 8 : units >= 4 ? 4 : 1;
    if (images * layer->down * layer->across * layer->runs == 1) {
        long count = 0;
        for (long row = 0; row < layer->run; row++) {
            nonzero[count] = row;
            count += x[row] != 0.0f;
        }
        LOCAL(dense_listed)(x, nonzero, weights, biases, y, count, units);
        return;
    }
    for (long first = 0; first < units; first += lanes) {
        long at = first + lanes <= units ? first : units - lanes;
        const float *some_biases = biases ? biases + at : 0;
        switch (lanes) {
        case WIDTH:
            LOCAL(JOIN(patches, WIDTH))(layer, x, x_size, weights + at, some_biases, y + at, images);
            break;
#if WIDTH >= 16
        case 8:
            LOCAL(patches8)(layer, x, x_size, weights + at, some_biases, y + at, images);
            break;
#endif
#if WIDTH >= 8
        case 4:
            LOCAL(patches4)(layer, x, x_size, weights + at, some_biases, y + at, images);
            break;
#endif
        default:
            LOCAL(patches1)(layer, x, x_size, weights + at, some_biases, y + at, images);
        }
    }
}

/* Write an observation, which has channels first, as an image of numbers from 0 to 1 that has them last. */
#define SCALE(TYPE)                                                                                                    \
    INLINE void LOCAL(JOIN(scale_, TYPE))(const struct convolutions *net, const TYPE *restrict observation,            \
                                          float *restrict image, const long channels)                                  \
    {                                                                                                                  \
        for (long pixel = 0; pixel < net->pixels; pixel++)                                                             \
            for (long channel = 0; channel < channels; channel++)                                                      \
                image[pixel * channels + channel] = (float)observation[channel * net->pixels + pixel] / 255.0f;        \
    }
SCALE(float)
SCALE(uint8_t)
#undef SCALE

/* Multiply the patches of layer number `number` of some images by its weights: y (images, patches * units). */
INLINE void LOCAL(multiply_hidden)(const struct convolutions *net, const struct layer *layer, const float *parameters,
                                   const float *x, float *y, long images)
{
    const float *shifts = parameters + layer->runs * layer->run * layer->units;
    LOCAL(multiply)(layer, x, layer->input_size, parameters, net->has_factors ? 0 : shifts, y, images, net->nonzero);
}

/* Multiply the units of a layer by their factors and add their offsets. */
INLINE void LOCAL(normalize)(float *restrict y, const float *restrict factors, const float *restrict offsets, long size)
{
    for (long k = 0; k < size; k++)
        y[k] = y[k] * factors[k] + offsets[k];
}

static void LOCAL(convolutions)(const struct convolutions *net, long members)
{
    for (long member = 0; member < members; member++) {
        const float *parameters = net->stack + member * net->stride, *x = net->image;
        const float *factors = net->factors + member * net->factors_per_member;
        const float *observation = net->inputs + member * net->channels * net->pixels;
        if (net->channels == 4) /* the compiler can then use vectors */
            LOCAL(scale_float)(net, observation, net->image, 4);
        else
            LOCAL(scale_float)(net, observation, net->image, net->channels);
        for (long number = 0; number < net->hidden; number++) {
            const struct layer *layer = net->layers + number;
            long size = layer->down * layer->across * layer->units;
            float *y = net->buffers[number % 2];
            LOCAL(multiply_hidden)(net, layer, parameters, x, y, 1);
            if (net->has_factors) {
                LOCAL(normalize)(y, factors, factors + size, size);
                factors += 2 * size;
            }
            LOCAL(activate)(y, size, net->activation);
            parameters += (layer->runs * layer->run + (net->has_factors ? 2 : 1)) * layer->units;
            x = y;
        }
        LOCAL(dense)(x, parameters, parameters + net->last_inputs * net->outputs_per_member,
                     net->outputs + member * net->outputs_per_member, net->last_inputs, net->outputs_per_member);
    }
}

/* Find the factors and offsets that normalise the units of a layer, of which y has `rows` values each. */
INLINE void LOCAL(find_factors)(const struct convolutions *net, const float *y, long rows, long units,
                                const float *shifts, const float *scales, float *factors, float *offsets)
{
    double *restrict means = net->moments, *restrict variances = net->moments + units;
    for (long unit = 0; unit < units; unit++)
        means[unit] = variances[unit] = 0;
    for (long row = 0; row < rows; row++)
        for (long unit = 0; unit < units; unit++)
            means[unit] += y[row * units + unit];
    for (long unit = 0; unit < units; unit++)
        means[unit] /= rows;
    for (long row = 0; row < rows; row++)
        for (long unit = 0; unit < units; unit++) {
            double deviation = y[row * units + unit] - means[unit];
            variances[unit] += deviation * deviation;
        }
    for (long unit = 0; unit < units; unit++) {
        factors[unit] = scales[unit] / sqrt(variances[unit] / rows + 1e-5f);
        offsets[unit] = shifts[unit] - means[unit] * factors[unit];
    }
}

static void LOCAL(refer)(const struct convolutions *net, long member)
{
    const float *parameters = net->stack + member * net->stride, *x = net->image;
    float *factors = net->factors + member * net->factors_per_member;
    long images = net->reference_count;
    for (long number = 0; number < net->hidden; number++) {
        const struct layer *layer = net->layers + number;
        long units = layer->units, patches = layer->down * layer->across, size = patches * units;
        float *y = net->buffers[number % 2], *offsets = factors + size;
        const float *shifts = parameters + layer->runs * layer->run * units;
        if (number)
            LOCAL(multiply_hidden)(net, layer, parameters, x, y, images);
        else
            for (long image = 0; image < images; image++) {
                LOCAL(scale_uint8_t)(net, net->reference + image * net->channels * net->pixels, net->image,
                                     net->channels);
                LOCAL(multiply_hidden)(net, layer, parameters, x, y + image * size, 1);
            }
        LOCAL(find_factors)(net, y, images * patches, units, shifts, shifts + units, factors, offsets);
        for (long k = units; k < size; k++) { /* the same for every patch */
            factors[k] = factors[k - units];
            offsets[k] = offsets[k - units];
        }
        for (long image = 0; image < images; image++)
            LOCAL(normalize)(y + image * size, factors, offsets, size);
        LOCAL(activate)(y, images * size, net->activation);
        parameters = shifts + 2 * units;
        factors += 2 * size;
        x = y;
    }
}

#undef PATCHES
