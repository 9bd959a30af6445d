/* Perceptrons, with vectors of WIDTH floats.  networks.h includes this file. */

static void LOCAL(perceptrons)(const struct perceptrons *net, long members)
{
    float buffers[2][MOST_UNITS];
    memset(buffers, 0, sizeof buffers);
    for (long member = 0; member < members; member++) {
        const float *weights = net->stack + member * net->stride, *input = net->inputs + member * net->widths[0];
        for (long layer = 0; layer < net->layers; layer++) {
            long rows = net->widths[layer], columns = net->widths[layer + 1], is_last = layer == net->layers - 1;
            const float *biases = net->has_biases ? weights + rows * columns : 0;
            float *output = is_last ? net->outputs + member * columns : buffers[layer % 2];
            LOCAL(dense)(input, weights, biases, output, rows, columns);
            if (!is_last)
                LOCAL(activate)(output, columns, net->activation);
            weights += rows * columns + (net->has_biases ? columns : 0);
            input = output;
        }
    }
}
