// hyperbolic_tangent(x), and exponential_minus_one(x) = e^x - 1 for x <= 0, in float and in double:
// on the GPU CUDA's own; on the CPU without branches, as in exp.h, so that compilers vectorise
// them.
//
// e^x - 1 is within 1.2 units in the last place and tanh within 2.5, near 0 too, where the
// difference itself would lose every digit: with x = n ln 2 + r, e^r - 1 is r and a small
// correction, and for n = 0 that is the result. For n < 0 it is 2^n (e^r - 1) + (2^n - 1).
#pragma once

#include "kernels/shared/exp.h"

HOST_DEVICE float exponential_minus_one(float x) {
#ifdef __CUDA_ARCH__
  return expm1f(x);
#else
  const auto [n, rest] = split_exponent(select(x < -20.0f, -20.0f, x));  // -1 from -17.4 on
  const float scale = power_of_two(n);
  return scale * rest + (scale - 1.0f);
#endif
}

HOST_DEVICE double exponential_minus_one(double x) {
#ifdef __CUDA_ARCH__
  return expm1(x);
#else
  const auto [n, rest] = split_exponent(select(x < -40.0, -40.0, x));  // -1 from -37.5 on
  const double scale = power_of_two(n);
  return scale * rest + (scale - 1.0);
#endif
}

HOST_DEVICE float hyperbolic_tangent(float x) {
#ifdef __CUDA_ARCH__
  return tanhf(x);
#else
  const float e = exponential_minus_one(-2.0f * __builtin_fabsf(x));
  return __builtin_copysignf(e / (e + 2.0f), x);
#endif
}

HOST_DEVICE double hyperbolic_tangent(double x) {
#ifdef __CUDA_ARCH__
  return tanh(x);
#else
  const double e = exponential_minus_one(-2.0 * __builtin_fabs(x));
  return __builtin_copysign(e / (e + 2.0), x);
#endif
}
