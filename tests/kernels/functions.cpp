// C functions that apply the kernels' functions of one element in a loop.
#include <stdint.h>

#include "kernels/lltm_math.h"

using namespace kernels;

#define LOOP(name, type, expression)                                    \
  extern "C" void name##_##type(type* out, const type* in, int64_t n) { \
    for (int64_t i = 0; i < n; ++i) {                                   \
      const type x = in[i];                                             \
      out[i] = expression;                                              \
    }                                                                   \
  }

// One per line: a test counts the lines whose loops are vectorised.
LOOP(exp, float, exponential(x))
LOOP(exp, double, exponential(x))
LOOP(expm1, float, exponential_minus_one(x))
LOOP(expm1, double, exponential_minus_one(x))
LOOP(tanh, float, hyperbolic_tangent(x))
LOOP(tanh, double, hyperbolic_tangent(x))
LOOP(sigmoid, float, Sigmoid()(x))
LOOP(sigmoid, double, Sigmoid()(x))
LOOP(elu, float, elu(x))
LOOP(elu, double, elu(x))
LOOP(lltm_element, float, lltm_element(x, -x, x + 1, x - 1).first)
LOOP(lltm_element, double, lltm_element(x, -x, x + 1, x - 1).first)
LOOP(lltm_gradient, float, lltm_element_gradient(x, -x, x + 1, x - 1, x, x).gate[2])
LOOP(lltm_gradient, double, lltm_element_gradient(x, -x, x + 1, x - 1, x, x).gate[2])
