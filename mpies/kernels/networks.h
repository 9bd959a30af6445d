/* The networks with vectors of WIDTH floats, as functions whose names begin with NAME.
 * kernels.c includes this file once for each width of vectors. */

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define LOCAL(name) JOIN(JOIN(NAME, _), name)
#define INLINE static inline __attribute__((always_inline))

#include "layers.h"

#include "convolution.h"
#include "perceptron.h"
#include "recurrent.h"

#undef INLINE
#undef LOCAL
#undef JOIN
#undef JOIN_
#undef NAME
#undef WIDTH
