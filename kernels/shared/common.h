// Every op's header includes this: the devices on which an op runs, and the types that it takes.
// Plain C++ for g++, clang++ and nvcc; no header of a framework may be included in this folder.
#pragma once

#include <stdint.h>

#include "kernels/shared/half.h"

namespace kernels {

// Runs an op on the CPU. The caller decides how work is spread over threads: `parallel_for` splits
// [0, n) into ranges of at least `grain` elements, calls range(context, begin, end) for each, on
// any thread, and returns when all calls have returned.
struct Cpu {
  using Range = void (*)(const void* context, int64_t begin, int64_t end);
  using ParallelFor = void (*)(int64_t n, int64_t grain, Range range, const void* context);

  static void serial(int64_t n, int64_t /*grain*/, Range range, const void* context) {
    range(context, 0, n);
  }

  ParallelFor parallel_for = serial;

  // Calls f(begin, end) for ranges that cover [0, n). Waking a thread takes about 10 us, about as
  // long as the work on the default grain of 32768 elements.
  template <class F>
  void for_ranges(int64_t n, const F& f, int64_t grain = 32768) const {
    const auto range = [](const void* context, int64_t begin, int64_t end) {
      (*static_cast<const F*>(context))(begin, end);
    };
    if (n > 0) parallel_for(n, grain, range, &f);
  }
};

// Runs an op on the current CUDA device, in this cudaStream_t, asynchronously.
struct Cuda {
  void* stream = nullptr;
};

}  // namespace kernels

// Expands X(T) for every type T that an op takes. The last lines of an op's .cu and _cpu.cpp
// instantiate its templates:
//
//   #define INSTANTIATE(T) template void add2(Cuda, T*, const T*, const T*, int64_t);
//   FOR_FLOATING(INSTANTIATE)
#define FOR_FLOATING(X) X(double) X(float) X(kernels::Half) X(kernels::BFloat16)
// An alias of the function's type would need no macro in the op, but nvcc 13.2 fails on it with an
// internal error.
