// hyperbolic_tangent(x), and exponential_minus_one(x) = e^x - 1 for x <= 0, for float and double.
// The GPU uses CUDA's functions. On the CPU they have no branches, as in exp.h, so that compilers
// vectorise them.
//
// The error is at most 1.2 ULP for e^x - 1 and 2.5 for tanh, near 0 too, where subtracting 1 from
// e^x would lose every digit. With x = n ln 2 + r, e^r - 1 is r plus a small correction. That is
// the result for n = 0; for n < 0 the result is 2^n (e^r - 1) + (2^n - 1).
#pragma once

#include "kernels/shared/exp.h"

namespace kernels {

HOST_DEVICE float exponential_minus_one(float x) {
#ifdef __CUDA_ARCH__
  return expm1f(x);
#else
  const auto [n, rest] = split_exponent(select(x < -20.0f, -20.0f, x));  // -1 below -17.4
  const float scale = power_of_two(n);
  return scale * rest + (scale - 1.0f);
#endif
}

HOST_DEVICE double exponential_minus_one(double x) {
#ifdef __CUDA_ARCH__
  return expm1(x);
#else
  const auto [n, rest] = split_exponent(select(x < -40.0, -40.0, x));  // -1 below -37.5
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

}  // namespace kernels
