// NAME on the CPU.
#include "kernels/NAME.h"

using namespace kernels;

template <class T>
void NAME(Cpu where, T* y, const T* x, int64_t n) {
  // If n is large, the range is divided among several threads.
  where.for_ranges(n, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Accumulate<T> value = widen(x[i]);  // double or float: 16-bit numbers become float
      const Accumulate<T> result = value;       // your formula
      y[i] = narrow<T>(result);
    }
  });
}

// Compiles it for each type that a tensor may have.
#define INSTANTIATE(T) template void NAME(Cpu, T*, const T*, int64_t);
FOR_FLOATING(INSTANTIATE)
