// hyperbolic_tangent(x), and exponential_minus_one(x) = e^x - 1 for x <= 0, in float and in double:
// on the GPU CUDA's own; on the CPU without branches, as in exp.h, so that compilers vectorise
// them.
//
// e^x - 1 is within 1.2 units in the last place and tanh within 2.5, near 0 too, where the
// difference itself would lose every digit: with x = n ln 2 + r, e^r - 1 is r and a small
// correction, and for n = 0 that is the result. For n < 0 it is 2^n (e^r - 1) + (2^n - 1).
#pragma once

#include "kernels/exp.h"

HOST_DEVICE float exponential_minus_one(float x) {
#ifdef __CUDA_ARCH__
  return expm1f(x);
#else
  x = choose(x < -20.0f, -20.0f, x);  // from -17.4 on the result is -1
  constexpr float kWhole = 12582912.0f;
  const float shifted = x * 1.44269504f + kWhole;
  const float n = shifted - kWhole;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float scale = power_of_two(static_cast<int32_t>(float_bits(shifted) - float_bits(kWhole)));
  return scale * (p * (r * r) + r) + (scale - 1.0f);
#endif
}

HOST_DEVICE double exponential_minus_one(double x) {
#ifdef __CUDA_ARCH__
  return expm1(x);
#else
  x = choose(x < -40.0, -40.0, x);  // from -37.5 on the result is -1
  constexpr double kWhole = 6755399441055744.0;
  const double shifted = x * 1.4426950408889634 + kWhole;
  const double n = shifted - kWhole;
  const double r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  int64_t whole, zero;
  memcpy(&whole, &shifted, sizeof(whole));
  memcpy(&zero, &kWhole, sizeof(zero));
  const double scale = power_of_two(whole - zero);
  return scale * (p * (r * r) + r) + (scale - 1.0);
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
