// What every kernel's header shares: where an op runs, and for which types it is built.
// Plain C++ that g++, clang++ and nvcc all read; no framework's header belongs in this folder.
#pragma once

#include <stdint.h>

#include "kernels/shared/half.h"

// Run on the CPU. The caller says how the work is spread over threads, as a CUDA caller gives a
// stream: `parallel_for` splits [0, n) into ranges of at least `grain` elements, calls
// range(context, begin, end) for each, on any thread, and returns when all are done.
struct Cpu {
  using Range = void (*)(const void* context, int64_t begin, int64_t end);
  using ParallelFor = void (*)(int64_t n, int64_t grain, Range range, const void* context);

  static void serial(int64_t n, int64_t /*grain*/, Range range, const void* context) {
    range(context, 0, n);
  }

  ParallelFor parallel_for = serial;

  // Calls f(begin, end) over ranges that cover [0, n). A thread costs about 10 us to wake: the
  // default grain of 32768 elements is about as much work.
  template <class F>
  void for_ranges(int64_t n, const F& f, int64_t grain = 32768) const {
    const auto range = [](const void* context, int64_t begin, int64_t end) {
      (*static_cast<const F*>(context))(begin, end);
    };
    if (n > 0) parallel_for(n, grain, range, &f);
  }
};

// Run on the current CUDA device, in this cudaStream_t. A launch does not wait for the kernel.
struct Cuda {
  void* stream = nullptr;
};

// Says X(T) for every type T that an op takes. With it a kernel's last lines define its templates:
//
//   #define INSTANTIATE(T) template void add2(Cuda, T*, const T*, const T*, int64_t);
//   FOR_FLOATING(INSTANTIATE)
//
// Not by an alias of the function's type, which would need no macro of the op's own: that makes
// nvcc 13.2 end with an internal error.
#define FOR_FLOATING(X) X(double) X(float) X(Half) X(BFloat16)
