// 64 elements at a time between memory and the type that the CPU computes them in.
//
// For Half: compilers do not vectorise its conversion into the F16C instructions that every CPU of
// x86-64-v3 has; 8192 additions take 9.3 us element by element and 0.6 us through these blocks.
// The other types' loops vectorise by themselves and need no blocks. The compilers' own names for
// the instructions stand here because immintrin.h has 97 files and takes 0.7 s of a kernel's 1.0 s.
#pragma once

#include <string.h>

#include "kernels/half.h"

constexpr int kBlock = 64;

template <class T>
struct Block {
  Accumulate<T> value[kBlock];
};

#ifdef __F16C__
// As wide as the vectors that the compiler makes of the loops over a block: a load of 64 bytes that
// two stores of 32 have written waits for both (3.9 us instead of 0.5 for those 8192 additions).
#ifdef __AVX512F__
constexpr int kWide = 16;
#else
constexpr int kWide = 8;
#endif
using WideFloats __attribute__((vector_size(4 * kWide))) = float;
#ifdef __clang__
using WideHalves __attribute__((vector_size(2 * kWide))) = _Float16;
inline WideFloats widen(WideHalves x) { return __builtin_convertvector(x, WideFloats); }
inline WideHalves narrow(WideFloats x) { return __builtin_convertvector(x, WideHalves); }
#else
using WideHalves __attribute__((vector_size(2 * kWide))) = short;
constexpr int kToNearest = 0;
#ifdef __AVX512F__
constexpr unsigned short kAll = 0xffff;
constexpr int kCurrentRounding = 4;
inline WideFloats widen(WideHalves x) {
  return __builtin_ia32_vcvtph2ps512_mask(x, WideFloats{}, kAll, kCurrentRounding);
}
inline WideHalves narrow(WideFloats x) {
  return __builtin_ia32_vcvtps2ph512_mask(x, kToNearest, WideHalves{}, kAll);
}
#else
inline WideFloats widen(WideHalves x) { return __builtin_ia32_vcvtph2ps256(x); }
inline WideHalves narrow(WideFloats x) { return __builtin_ia32_vcvtps2ph256(x, kToNearest); }
#endif
#endif
#endif

inline Block<Half> load_block(const Half* from) {
  Block<Half> block;
#ifdef __F16C__
  for (int i = 0; i < kBlock; i += kWide) {
    WideHalves halves;
    memcpy(&halves, from + i, sizeof(halves));
    const WideFloats floats = widen(halves);
    memcpy(block.value + i, &floats, sizeof(floats));
  }
#else
  for (int i = 0; i < kBlock; ++i) block.value[i] = widen(from[i]);
#endif
  return block;
}

inline void store_block(Half* to, const Block<Half>& block) {
#ifdef __F16C__
  for (int i = 0; i < kBlock; i += kWide) {
    WideFloats floats;
    memcpy(&floats, block.value + i, sizeof(floats));
    const WideHalves halves = narrow(floats);
    memcpy(to + i, &halves, sizeof(halves));
  }
#else
  for (int i = 0; i < kBlock; ++i) to[i] = narrow<Half>(block.value[i]);
#endif
}
