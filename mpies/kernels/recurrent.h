/* Recurrent networks, with vectors of WIDTH floats.  networks.h includes this file. */

/* The vector of gate number `gate` for units at .. at + WIDTH - 1. */
INLINE LOCAL(vector) LOCAL(gate)(const float *gates, long gate, long units, long at)
{
    LOCAL(vector) x;
    memcpy(&x, gates + gate * units + at, sizeof x);
    return x;
}

static void LOCAL(recurrent)(const struct recurrent *net, long members)
{
    /* Vectors may reach beyond the last unit, so these have room for one more. */
    float sums[MOST_GATES * MOST_UNITS], gates[MOST_GATES * MOST_UNITS + WIDTH] = {0};
    float next_units[MOST_UNITS + WIDTH] = {0}, next_cells[MOST_UNITS + WIDTH] = {0};
    long units = net->units, width = (net->kind == LSTM ? 4 : net->kind == GRU ? 3 : 1) * units;
    for (long member = 0; member < members; member++) {
        const float *input_weights = net->stack + member * net->stride;
        const float *unit_weights = input_weights + net->inputs_per_member * width;
        const float *biases = unit_weights + units * width;
        const float *candidate_biases = biases + width; /* of GRU */
        const float *out_weights = candidate_biases + (net->kind == GRU ? units : 0);
        float *state = net->unit_values + member * units;
        float *cells = net->kind == LSTM ? net->cells + member * units : next_cells;
        const LOCAL(vector) one = (LOCAL(vector)){0} + 1.0f;
        LOCAL(vector) h, c;
        LOCAL(dense)(net->inputs + member * net->inputs_per_member, input_weights, biases, sums,
                     net->inputs_per_member, width);
        if (net->kind == GRU) {
            memcpy(next_cells, sums + 2 * units, sizeof(float) * units); /* weighted inputs of the candidates */
            memcpy(sums + 2 * units, candidate_biases, sizeof(float) * units);
        }
        LOCAL(dense)(state, unit_weights, sums, gates, units, width);
        if (net->kind == LSTM)
            memcpy(next_cells, cells, sizeof(float) * units);
        memcpy(next_units, state, sizeof(float) * units);
        for (long at = 0; at < units; at += WIDTH) {
            memcpy(&c, next_cells + at, sizeof c);
            memcpy(&h, next_units + at, sizeof h);
            switch (net->kind) {
            case LSTM:
                c = c * LOCAL(sigmoid)(LOCAL(gate)(gates, 1, units, at));
                c += LOCAL(sigmoid)(LOCAL(gate)(gates, 0, units, at)) * LOCAL(tanh)(LOCAL(gate)(gates, 2, units, at));
                h = LOCAL(sigmoid)(LOCAL(gate)(gates, 3, units, at)) * LOCAL(tanh)(c);
                memcpy(next_cells + at, &c, sizeof c);
                break;
            case GRU: {
                LOCAL(vector) resets = LOCAL(sigmoid)(LOCAL(gate)(gates, 0, units, at));
                LOCAL(vector) updates = LOCAL(sigmoid)(LOCAL(gate)(gates, 1, units, at));
                LOCAL(vector) candidates = LOCAL(tanh)(c + resets * LOCAL(gate)(gates, 2, units, at));
                h = h * updates + (one - updates) * candidates;
                break;
            }
            default:
                h = LOCAL(tanh)(LOCAL(gate)(gates, 0, units, at));
            }
            memcpy(next_units + at, &h, sizeof h);
        }
        memcpy(state, next_units, sizeof(float) * units);
        if (net->kind == LSTM)
            memcpy(cells, next_cells, sizeof(float) * units);
        LOCAL(dense)(state, out_weights, out_weights + units * net->outputs_per_member,
                     net->outputs + member * net->outputs_per_member, units, net->outputs_per_member);
    }
}
