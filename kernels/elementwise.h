// out[i] = Formula()(in[i]...) for every i in [0, n), on the CPU.
//
// Formula is a struct with a template operator() over the type it computes in: 16-bit inputs
// arrive as float and the result is rounded once. All arrays hold n contiguous elements of one
// type; `out` may be one of the inputs, but must not partly overlap one.
#pragma once

#include <type_traits>

#include "kernels/block.h"
#include "kernels/common.h"

template <class Formula, class T, class... In>
void formula_of_blocks(T* out, const Block<In>&... in) {
  Block<T> result;
  for (int i = 0; i < kBlock; ++i) result.value[i] = Formula()(in.value[i]...);
  store_block(out, result);
}

template <class Formula, class T, class... In>
void elementwise(Cpu where, int64_t n, T* out, const In*... in) {
  where.for_ranges(n, [=](int64_t begin, int64_t end) {
    int64_t i = begin;
    if constexpr (std::is_same_v<T, Half>) {
      for (; i + kBlock <= end; i += kBlock) {
        formula_of_blocks<Formula, T, In...>(out + i, load_block(in + i)...);
      }
    }
    for (; i < end; ++i) out[i] = narrow<T>(Formula()(widen(in[i])...));
  });
}
