// SIMD vectors of the CPU, for loops that compilers do not vectorise well by themselves.
//
// The vector types of g++ and clang++ have the usual operators. Instructions are named by the
// compilers' builtins: immintrin.h, with its 97 files, would take 0.7 s of the 1.0 s in which a
// kernel compiles.
#pragma once

#include <string.h>

#include "kernels/shared/half.h"

namespace kernels {

#if defined(__AVX512F__)
constexpr int kSimdBytes = 64;
#elif defined(__AVX__)
constexpr int kSimdBytes = 32;
#else
constexpr int kSimdBytes = 16;
#endif

// The number of elements in a vector; 16-bit types are widened to float.
template <class T>
constexpr int kSimdLanes = kSimdBytes / sizeof(Accumulate<T>);

template <class A>
struct SimdType {
  using type __attribute__((vector_size(kSimdBytes))) = A;
};
template <class T>
using Simd = typename SimdType<Accumulate<T>>::type;

template <class T>
Simd<T> load_simd(const T* from) {
  Accumulate<T> lanes[kSimdLanes<T>];
  for (int i = 0; i < kSimdLanes<T>; ++i) lanes[i] = widen(from[i]);
  Simd<T> result;
  memcpy(&result, lanes, sizeof(result));
  return result;
}

template <class T>
void store_simd(T* to, Simd<T> x) {
  Accumulate<T> lanes[kSimdLanes<T>];
  memcpy(lanes, &x, sizeof(x));
  for (int i = 0; i < kSimdLanes<T>; ++i) to[i] = narrow<T>(lanes[i]);
}

// These are the steps of narrow<BFloat16>: compilers do not vectorise a loop over so few 16-bit
// results.
template <>
inline void store_simd(BFloat16* to, Simd<BFloat16> x) {
  using Bits __attribute__((vector_size(kSimdBytes))) = uint32_t;
  using Results __attribute__((vector_size(kSimdBytes / 2))) = uint16_t;
  const Bits bits = reinterpret_cast<Bits>(x);
  const Bits rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const Bits nan = reinterpret_cast<Bits>((bits & 0x7fffffffu) > 0x7f800000u);
  const Results results = __builtin_convertvector((nan & 0x7fc0u) | (~nan & rounded), Results);
  memcpy(to, &results, sizeof(results));
}

// Compilers do not use the F16C instructions, which every x86-64-v3 CPU has, to convert Half.
#ifdef __F16C__
using PackedHalf __attribute__((vector_size(kSimdBytes / 2))) = short;
constexpr int kToNearest = 0;
#ifdef __AVX512F__
constexpr unsigned short kAll = 0xffff;
constexpr int kCurrentRounding = 4;
inline Simd<Half> widen(PackedHalf x) {
  return __builtin_ia32_vcvtph2ps512_mask(x, Simd<Half>{}, kAll, kCurrentRounding);
}
inline PackedHalf narrow(Simd<Half> x) {
  return __builtin_ia32_vcvtps2ph512_mask(x, kToNearest, PackedHalf{}, kAll);
}
#else
inline Simd<Half> widen(PackedHalf x) { return __builtin_ia32_vcvtph2ps256(x); }
inline PackedHalf narrow(Simd<Half> x) { return __builtin_ia32_vcvtps2ph256(x, kToNearest); }
#endif

template <>
inline Simd<Half> load_simd(const Half* from) {
  PackedHalf halves;
  memcpy(&halves, from, sizeof(halves));
  return widen(halves);
}

template <>
inline void store_simd(Half* to, Simd<Half> x) {
  const PackedHalf halves = narrow(x);
  memcpy(to, &halves, sizeof(halves));
}
#endif

}  // namespace kernels
