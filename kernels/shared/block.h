// 64 elements at a time between memory and the type that the CPU computes them in.
//
// For Half: 8192 additions take 9.3 us element by element and 0.6 us through these blocks. The
// other types' loops vectorise by themselves and need no blocks.
#pragma once

#include <string.h>

#include "kernels/shared/simd.h"

constexpr int kBlock = 64;

template <class T>
struct Block {
  Accumulate<T> value[kBlock];
};

// By vectors as wide as those that the compiler makes of the loops over a block: a load of 64 bytes
// that two stores of 32 have written waits for both (3.9 us instead of 0.5 for those additions).

inline Block<Half> load_block(const Half* from) {
  Block<Half> block;
#ifdef __F16C__
  for (int i = 0; i < kBlock; i += kSimdLanes<Half>) {
    const Simd<Half> floats = load_simd(from + i);
    memcpy(block.value + i, &floats, sizeof(floats));
  }
#else
  for (int i = 0; i < kBlock; ++i) block.value[i] = widen(from[i]);
#endif
  return block;
}

inline void store_block(Half* to, const Block<Half>& block) {
#ifdef __F16C__
  for (int i = 0; i < kBlock; i += kSimdLanes<Half>) {
    Simd<Half> floats;
    memcpy(&floats, block.value + i, sizeof(floats));
    store_simd(to + i, floats);
  }
#else
  for (int i = 0; i < kBlock; ++i) to[i] = narrow<Half>(block.value[i]);
#endif
}
