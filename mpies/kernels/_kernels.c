/* The inner loop of rollouts, compiled when mpies is installed (-O3 -ffp-contract=off); where it was not, NumPy computes
 * the same bits: rollouts.py says what is looked at, exported_mlp.py what a perceptron is.
 *
 * Every number is one chain of sums and products in the order of its terms, rounded one by one: no fused multiplication
 * and no other order, so that neither the width of the vectors nor the processor changes a bit.
 */
#if defined(__has_include) /* Python's own files, for the loop at the end; Debian has them in python3-dev */
#if __has_include(<Python.h>)
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#endif
#endif
#include <string.h>

#ifdef __FAST_MATH__
#error "sums must keep their order: compile without -ffast-math"
#endif

#define WIDEST 1024 /* units of a hidden layer */
#define ACCUMULATORS 10

enum activation { LINEAR, TANH, RELU, LRELU, ELU };
enum ending { NONE, CLIPPED, LARGEST };

/* Perceptrons of one shape.  widths: (layers + 1) units.  stack: a row of `stride` floats for each member: weights
 * (in, out) and, if has_biases, biases (out) of each layer.  inputs: (members, widths[0]).
 * outputs: (members, widths[layers]).  activation: of all layers but the last.  ending: what becomes of the outputs:
 * CLIPPED to low and high (widths[layers]), or the place of the LARGEST of each member in chosen (members). */
struct perceptrons {
    const long *widths;
    const float *stack, *inputs;
    float *outputs;
    const float *low, *high;
    int *chosen;
    long layers, stride, has_biases, activation, ending;
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

/* As NumPy's clip: what is not a number stays so. */
static void clip(const struct perceptrons *of, long members)
{
    long width = of->widths[of->layers];
    for (long member = 0; member < members; member++)
        for (long k = 0; k < width; k++) {
            float *y = of->outputs + member * width + k;
            *y = *y > of->low[k] || *y != *y ? *y : of->low[k];
            *y = *y < of->high[k] || *y != *y ? *y : of->high[k];
        }
}

/* As NumPy's argmax: the first of equals, and the first that is not a number where there is one. */
static void choose(const struct perceptrons *of, long members)
{
    long width = of->widths[of->layers];
    for (long member = 0; member < members; member++) {
        const float *y = of->outputs + member * width;
        int best = 0;
        for (int k = 1; k < width && y[best] == y[best]; k++)
            if (y[k] > y[best] || y[k] != y[k])
                best = k;
        of->chosen[member] = best;
    }
}

/* Outputs of the first `members`, and what becomes of them. */
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
    if (of->ending == CLIPPED)
        clip(of, members);
    else if (of->ending == LARGEST)
        choose(of, members);
}

/* What lanes see.  observations, centres, scales, inputs: (lanes, size).  sums: (lanes, 2, size), of observations and of
 * their squares, of those lanes that are sampled.  inputs: the observations, normalised and clipped to +- clip. */
struct sight {
    float *observations;
    const float *centres, *scales;
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
    double *rewards, *totals, *signs;
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

#ifdef Py_PYTHON_H
/* Steps of lanes that one batch of EnvPool plays, without a word of Python between its two calls.
 * sight, policy, score: of the same lanes.  send, receive, message: what is called to begin a step, to end it, and with
 * what.  actions: in the message, as float64; 0 where the policy's own output is.  places: (lanes,) of each lane's
 * episode.  at: where in what is received observations, rewards, ends and places are. */
struct loop {
    const struct sight *sight;
    const struct perceptrons *policy;
    const struct score *score;
    PyObject *send, *receive, *message;
    double *actions;
    const int *places;
    long at[4], looks, normalizes;
};

/* Put what was received of each lane in its place.  Returns 0 with a Python error where it is not what was expected. */
static int take(const struct loop *of, PyObject *received, long lanes)
{
    static const char *const types[4] = {"fd", "fd", "?", "i"};
    long size = of->sight->size, opened = 0, fine = 0;
    Py_buffer views[4];
    for (; opened < 4; opened++) {
        PyObject *array = PyList_GetItem(received, of->at[opened]);
        if (!array || PyObject_GetBuffer(array, &views[opened], PyBUF_C_CONTIGUOUS | PyBUF_FORMAT))
            goto end;
        const Py_buffer *view = &views[opened];
        if (!strchr(types[opened], *view->format) || view->len != lanes * (opened ? 1 : size) * view->itemsize) {
            PyErr_Format(PyExc_TypeError, "EnvPool returned %zd bytes of type %s", view->len, view->format);
            opened++;
            goto end;
        }
    }
    const int *places = views[3].buf;
    for (long row = 0; row < lanes; row++) {
        long lane = row;
        if (of->places[lane] != places[row])
            for (lane = 0; lane < lanes - 1 && of->places[lane] != places[row]; lane++)
                ;
        float *seen = of->sight->observations + lane * size;
        double *reward = of->score->rewards + lane;
        if (*views[0].format == 'f')
            memcpy(seen, (float *)views[0].buf + row * size, size * sizeof *seen);
        else
            for (long k = 0; k < size; k++)
                seen[k] = ((double *)views[0].buf)[row * size + k];
        *reward = *views[1].format == 'f' ? ((float *)views[1].buf)[row] : ((double *)views[1].buf)[row];
        of->score->over[lane] = ((unsigned char *)views[2].buf)[row];
    }
    fine = 1;
end:
    while (opened)
        PyBuffer_Release(&views[--opened]);
    return fine;
}

/* Steps number `step` and following, until one is an episode's last, at most `most`.  Returns how many were made, or -1
 * with a Python error.  Call it with the GIL held. */
long mpies_play(const struct loop *of, long lanes, long step, long most)
{
    struct perceptrons policy = *of->policy;
    long made = 0, ended = 0, numbers = lanes * policy.widths[policy.layers];
    policy.inputs = of->normalizes ? of->sight->inputs : of->sight->observations;
    while (made < most && !ended) {
        if (of->looks)
            mpies_look(of->sight, lanes, of->normalizes);
        mpies_forward(&policy, lanes);
        if (of->actions)
            for (long k = 0; k < numbers; k++)
                of->actions[k] = policy.outputs[k];
        PyObject *sent = PyObject_CallOneArg(of->send, of->message);
        if (!sent)
            return -1;
        Py_DECREF(sent);
        PyObject *received = PyObject_CallNoArgs(of->receive);
        if (!received)
            return -1;
        int taken = take(of, received, lanes);
        Py_DECREF(received);
        if (!taken)
            return -1;
        made++;
        ended = mpies_score(of->score, lanes, step + made);
    }
    return made;
}
#endif
