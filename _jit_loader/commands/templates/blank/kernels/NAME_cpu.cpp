// NAME on the CPU.
#include "kernels/NAME.h"

template <class T>
void NAME(Cpu where, T* y, const T* x, int64_t n) {
  // Several threads take a range each, where n is large.
  where.for_ranges(n, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Accumulate<T> value = widen(x[i]);  // double or float: 16-bit numbers come as float
      const Accumulate<T> result = value;       // your formula
      y[i] = narrow<T>(result);
    }
  });
}

// Compiles it for every type that a tensor may have.
#define INSTANTIATE(T) template void NAME(Cpu, T*, const T*, int64_t);
FOR_FLOATING(INSTANTIATE)
