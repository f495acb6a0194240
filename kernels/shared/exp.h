// exponential(x) = e^x for float and double. The GPU uses CUDA's function. The CPU uses a
// polynomial that compilers vectorise; without -ffast-math g++ calls expf for each element.
//
// With x = n ln 2 + r, n an integer and |r| <= ln(2)/2, e^x is 2^n e^r. ln 2 is split into two
// constants, the first of so few digits that n times it is exact. The error is at most 1 ULP for
// float and double. Results underflow gradually to 0 and overflow to infinity; NaN stays NaN.
#pragma once

#include "kernels/shared/half.h"

namespace kernels {

// 2^n for an integer n in [-126, 127] (float) or [-1022, 1023] (double).
HOST_DEVICE float power_of_two(int32_t n) {
  return float_from_bits(static_cast<uint32_t>(n + 127) << 23);
}

HOST_DEVICE double power_of_two(int64_t n) {
  const uint64_t bits = static_cast<uint64_t>(n + 1023) << 52;
  double value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

// As in half.h: g++ turns ?: into a branch if one side is a constant or saves work.
HOST_DEVICE float select(bool condition, float yes, float no) {
#ifdef __CUDA_ARCH__
  return condition ? yes : no;
#else
  return float_from_bits(select(condition, float_bits(yes), float_bits(no)));
#endif
}

HOST_DEVICE double select(bool condition, double yes, double no) {
#ifdef __CUDA_ARCH__
  return condition ? yes : no;
#else
  uint64_t bits, other;
  memcpy(&bits, &yes, sizeof(bits));
  memcpy(&other, &no, sizeof(other));
  bits = other ^ ((other ^ bits) & (0 - static_cast<uint64_t>(condition)));
  memcpy(&yes, &bits, sizeof(yes));
  return yes;
#endif
}

// n and e^r - 1 for x = n ln 2 + r; e^r itself would lose the digits of a small r. |x| < 1000.
template <class T, class Integer>
struct Split {
  Integer n;
  T rest;
};

inline Split<float, int32_t> split_exponent(float x) {
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the lowest bits.
  constexpr float kRounder = 12582912.0f;
  const float shifted = x * 1.44269504f + kRounder;
  const float n = shifted - kRounder;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;  // the coefficients are from expf of the Cephes library
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return {static_cast<int32_t>(float_bits(shifted) - float_bits(kRounder)), p * (r * r) + r};
}

inline Split<double, int64_t> split_exponent(double x) {
  constexpr double kRounder = 6755399441055744.0;  // 1.5 * 2^52
  const double shifted = x * 1.4426950408889634 + kRounder;
  const double n = shifted - kRounder;
  const double r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
  double p = 1.0 / 6227020800.0;  // the Taylor series; the omitted terms are below 1e-17
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
  int64_t integer, zero;
  memcpy(&integer, &shifted, sizeof(integer));
  memcpy(&zero, &kRounder, sizeof(zero));
  return {integer - zero, p * (r * r) + r};
}

// Below, 2^n is applied as two factors, since 2^n itself may underflow or overflow.

HOST_DEVICE float exponential(float x) {
#ifdef __CUDA_ARCH__
  return expf(x);
#else
  x = select(x > 89.0f, 89.0f, x);  // e^89 is infinity, e^-104 is 0
  x = select(x < -104.0f, -104.0f, x);
  const auto [n, rest] = split_exponent(x);
  const int32_t half = n >> 1;
  return (rest + 1.0f) * power_of_two(half) * power_of_two(n - half);
#endif
}

HOST_DEVICE double exponential(double x) {
#ifdef __CUDA_ARCH__
  return exp(x);
#else
  x = select(x > 710.0, 710.0, x);  // e^710 is infinity, e^-746 is 0
  x = select(x < -746.0, -746.0, x);
  const auto [n, rest] = split_exponent(x);
  // n >> 1; AVX2 has no arithmetic shift of 64-bit integers.
  const int64_t half = static_cast<int64_t>(static_cast<uint64_t>(n + 2048) >> 1) - 1024;
  return (rest + 1.0) * power_of_two(half) * power_of_two(n - half);
#endif
}

// 1 / x for x >= 1, within 1 ULP. The GPU uses one instruction: a full division, which handles
// every special case, makes the sigmoid of 16-bit types compute-bound.
HOST_DEVICE float reciprocal(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("rcp.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return 1.0f / x;
#endif
}

HOST_DEVICE double reciprocal(double x) { return 1.0 / x; }

}  // namespace kernels
