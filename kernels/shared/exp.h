// exponential(x) = e^x, in float and in double: on the GPU CUDA's own; on the CPU a polynomial that
// compilers vectorise, since g++ calls expf for one element at a time (without -ffast-math).
//
// x = n ln 2 + r with a whole n and |r| <= ln(2)/2, so e^x = 2^n e^r. ln 2 is split in two, of
// which the first has so few digits that n times it is exact. Within 1 unit in the last place for
// float and for double; results below the smallest normal number are rounded to subnormal ones or
// 0, those above the largest are infinity, and not-a-number stays so.
#pragma once

#include "kernels/shared/half.h"

// 2^n for a whole n in [-150, 150].
HOST_DEVICE float power_of_two(int32_t n) {
  return float_from_bits(static_cast<uint32_t>(n + 127) << 23);
}

HOST_DEVICE double power_of_two(int64_t n) {
  const uint64_t bits = static_cast<uint64_t>(n + 1023) << 52;
  double value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

// The same for floats: of ?: g++ makes a branch wherever one side is a constant or saves work.
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

// x as n ln 2 + r: the whole n, and e^r - 1, which keeps the digits of a small r. |x| below 1000.
template <class T, class Whole>
struct Split {
  Whole n;
  T rest;
};

inline Split<float, int32_t> split_exponent(float x) {
  // Adding 1.5 * 2^23 rounds to a whole number, which then stands in the lowest bits.
  constexpr float kWhole = 12582912.0f;
  const float shifted = x * 1.44269504f + kWhole;
  const float n = shifted - kWhole;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;  // of the Cephes library's expf
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return {static_cast<int32_t>(float_bits(shifted) - float_bits(kWhole)), p * (r * r) + r};
}

inline Split<double, int64_t> split_exponent(double x) {
  constexpr double kWhole = 6755399441055744.0;  // 1.5 * 2^52
  const double shifted = x * 1.4426950408889634 + kWhole;
  const double n = shifted - kWhole;
  const double r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
  double p = 1.0 / 6227020800.0;  // Taylor's series; what it leaves out is below 1e-17
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
  return {whole - zero, p * (r * r) + r};
}

// 2^n is taken in two steps below, because it may itself be too small or too large for the type.

HOST_DEVICE float exponential(float x) {
#ifdef __CUDA_ARCH__
  return expf(x);
#else
  x = select(x > 89.0f, 89.0f, x);  // e^89 is infinite, e^-104 zero
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
  x = select(x > 710.0, 710.0, x);  // e^710 is infinite, e^-746 zero
  x = select(x < -746.0, -746.0, x);
  const auto [n, rest] = split_exponent(x);
  // Not n >> 1, which AVX2 lacks for signed numbers of 64 bits.
  const int64_t half = static_cast<int64_t>(static_cast<uint64_t>(n + 2048) >> 1) - 1024;
  return (rest + 1.0) * power_of_two(half) * power_of_two(n - half);
#endif
}

// 1 / x for x of 1 and above, to a unit in the last place. On the GPU in one instruction, where a
// division that minds every special case makes the sigmoid of 16-bit numbers compute-bound.
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
