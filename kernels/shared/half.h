// The 16-bit types, for storage only. Kernels widen them to float, compute in float, and narrow the
// result once, rounding to nearest even.
//
// CUDA's own cuda_fp16.h and cuda_bf16.h would add 0.5 s to the compilation of every .cu file. The
// conversions have no branches, so that compilers vectorise the loops that contain them.
#pragma once

#include <stdint.h>
#include <string.h>

// A function for the CPU, whose code X_cpu.cpp has, and for the GPU.
#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__ inline
#else
#define HOST_DEVICE inline
#endif

namespace kernels {

struct Half {
  uint16_t bits;
};

struct BFloat16 {
  uint16_t bits;
};

// The type in which values of type T are computed and accumulated.
template <class T>
struct AccumulateType {
  using type = T;
};
template <>
struct AccumulateType<Half> {
  using type = float;
};
template <>
struct AccumulateType<BFloat16> {
  using type = float;
};
template <class T>
using Accumulate = typename AccumulateType<T>::type;

HOST_DEVICE uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

HOST_DEVICE float float_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

// select(condition, yes, no) is condition ? yes : no, computed with masks. g++ turns ?: back into
// branches around floating-point operations, and then does not vectorise the loop.
HOST_DEVICE uint32_t select(bool condition, uint32_t yes, uint32_t no) {
  return no ^ ((yes ^ no) & (0u - static_cast<uint32_t>(condition)));
}

// widen(x) converts x to Accumulate<T>, exactly.

HOST_DEVICE double widen(double x) { return x; }

HOST_DEVICE float widen(float x) { return x; }

HOST_DEVICE float widen(BFloat16 x) { return float_from_bits(uint32_t{x.bits} << 16); }

HOST_DEVICE float widen(Half x) {
#ifdef __CUDA_ARCH__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
  return value;
#else
  const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16;
  const uint32_t magnitude = uint32_t{x.bits & 0x7fffu} << 13;
  const uint32_t exponent = magnitude & 0x0f800000u;
  // The exponent bias is 15 for Half and 127 for float.
  const uint32_t normal = magnitude + (112u << 23);
  const uint32_t infinite_or_nan = magnitude + (224u << 23);
  // A subnormal is mantissa * 2^-24. This sets the exponent of 2^-14 and then subtracts 2^-14, so
  // that no intermediate float is subnormal: the thread may flush those to zero.
  const float subnormal = float_from_bits(magnitude + (113u << 23)) - float_from_bits(113u << 23);
  uint32_t bits = select(exponent == 0x0f800000u, infinite_or_nan, normal);
  bits = select(exponent == 0, float_bits(subnormal), bits);
  return float_from_bits(sign | bits);
#endif
}

// narrow<T>(x) rounds x to T, to nearest even.

template <class T>
HOST_DEVICE T narrow(Accumulate<T> x) {
  return x;
}

template <>
HOST_DEVICE BFloat16 narrow<BFloat16>(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  BFloat16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
#else
  const uint32_t bits = float_bits(x);
  // Adds just under half a unit of the last place kept, or exactly half if that place is odd. The
  // carry rounds to nearest even; above the largest finite value it gives infinity.
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return BFloat16{static_cast<uint16_t>(select(nan, 0x7fc0u, rounded))};
#endif
}

template <>
HOST_DEVICE Half narrow<Half>(float x) {
#ifdef __CUDA_ARCH__
  Half result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
#else
  const uint32_t bits = float_bits(x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Normal: the exponent gets Half's bias, then 13 bits are rounded off as above.
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Below 2^-14: floats from 0.5 to 1 are 2^-24 apart, as subnormal Halfs are, so adding 0.5 rounds
  // to one of them.
  const uint32_t subnormal = float_bits(float_from_bits(magnitude) + 0.5f) - float_bits(0.5f);
  uint32_t result = select(magnitude < (113u << 23), subnormal, normal);
  result = select(magnitude >= 0x47800000u, 0x7c00u, result);  // 65536 and above: infinity
  result = select(magnitude > 0x7f800000u, 0x7e00u, result);   // NaN
  return Half{static_cast<uint16_t>(sign | result)};
#endif
}

}  // namespace kernels
