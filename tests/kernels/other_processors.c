/* Prints hashes of what the kernels compute, so that builds for two processors can be compared. */
#include <stdio.h>
#include <string.h>

#include "kernels.h"

static uint32_t state = 1;

static float draw(void)
{
    state = state * 1664525u + 1013904223u;
    return (float)((int32_t)(state >> 8) - (1 << 23)) / (1 << 22);
}

static void fill(float *values, long count)
{
    for (long i = 0; i < count; i++)
        values[i] = draw();
}

static void hash(const char *name, const void *values, long bytes)
{
    uint64_t sum = 14695981039346656037u;
    for (long i = 0; i < bytes; i++)
        sum = (sum ^ ((const uint8_t *)values)[i]) * 1099511628211u;
    printf("%s %016llx\n", name, (unsigned long long)sum);
}

int main(void)
{
    static float stack[3 * 20000], inputs[3 * 27], outputs[3 * 7], units[3 * 33], cells[3 * 33], seen[3 * 27];
    static double sums[3 * 2 * 27];
    const int64_t widths[] = {27, 33, 64, 7};
    const float low[] = {-1, -1, -1, -1, -1, -1, -1}, high[] = {1, 1, 1, 1, 1, 1, 1};
    const uint8_t sampled[] = {1, 0, 1};
    for (long activation = LINEAR; activation <= ELU; activation++) {
        fill(stack, 3 * 20000);
        fill(inputs, 3 * 27);
        struct perceptrons net = {widths, stack, inputs, outputs, 3, 20000, 1, activation};
        mpies_run_perceptrons(&net, 3);
        hash("perceptron", outputs, sizeof outputs);
    }
    for (long kind = LSTM; kind <= ELMAN; kind++) {
        fill(units, 3 * 33);
        fill(cells, 3 * 33);
        struct recurrent net = {stack, inputs, outputs, units, cells, kind, 27, 33, 7, 20000};
        mpies_run_recurrent(&net, 3);
        hash("recurrent", outputs, sizeof outputs);
        hash("units", units, sizeof units);
    }
    struct head head = {outputs, low, high, NULL, NULL, NULL, 7, CLIPPED, 0, 0};
    mpies_decide(&head, 3);
    hash("clipped", outputs, sizeof outputs);
    struct observation_pass pass = {inputs, stack, stack + 27, seen, sums, sampled, 27, 5};
    mpies_observe(&pass, 3, 1);
    hash("observed", seen, sizeof seen);
    hash("sums", sums, sizeof sums);
    return 0;
}
