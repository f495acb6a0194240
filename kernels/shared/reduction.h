// *out = Finish()(the sum of Formula()(in[i]...) over every i in [0, n)), on the CPU; the sum of no
// elements is 0.
//
//   reduce<Formula, Finish>(where, n, out, scratch, in...)
//
// Formula and Finish are structs with a templated operator() that computes in double or float:
// 16-bit inputs are widened to float and accumulated as float, and the result is rounded once. All
// arrays hold n contiguous elements of one type. `scratch` is uninitialised memory for
// partial_sums(where, n) values.
//
// The order of all additions depends on n alone. A chunk is summed in 64 lanes, so that the loop is
// vectorised. The sums of lanes, and then of chunks, are added pairwise: a lane adds at most
// kReductionChunk / 64 terms one after another, whatever n is.
#pragma once

#include <type_traits>

#include "kernels/shared/block.h"
#include "kernels/shared/partial_sums.h"

namespace kernels {

// The sum of n > 0 values, which it overwrites: it repeatedly adds the second half to the first.
template <class Sum>
Sum pairwise_sum(Sum* values, int64_t n) {
  while (n > 1) {
    const int64_t half = (n + 1) / 2;
    for (int64_t i = 0; i < n - half; ++i) values[i] += values[half + i];
    n = half;
  }
  return values[0];
}

template <class Formula, class Sum, class... In>
void add_block(Sum* lanes, const In*... in) {
  for (int i = 0; i < kBlock; ++i) lanes[i] += Formula()(widen(in[i])...);
}

template <class Formula, class... In>
void add_loaded_block(float* lanes, const Block<In>&... in) {
  for (int i = 0; i < kBlock; ++i) lanes[i] += Formula()(in.value[i]...);
}

template <class Formula, class Sum, class... In>
Sum sum_of_chunk(int64_t n, const In*... in) {
  Sum lanes[kBlock] = {};
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    if constexpr ((std::is_same_v<In, Half> && ...)) {
      add_loaded_block<Formula>(lanes, load_block(in + i)...);
    } else {
      add_block<Formula>(lanes, in + i...);
    }
  }
  for (int lane = 0; i < n; ++i, ++lane) lanes[lane] += Formula()(widen(in[i])...);
  return pairwise_sum(lanes, kBlock);
}

template <class Formula, class Finish, class T, class... In>
void reduce(Cpu where, int64_t n, T* out, Accumulate<T>* scratch, const In*... in) {
  using Sum = Accumulate<T>;
  const int64_t parts = partial_sums(where, n);
  if (parts == 0) {
    *out = narrow<T>(Finish()(sum_of_chunk<Formula, Sum>(n, in...)));
    return;
  }
  const auto sum_chunks = [=](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      const int64_t first = chunk * kReductionChunk;
      const int64_t size = n - first < kReductionChunk ? n - first : kReductionChunk;
      scratch[chunk] = sum_of_chunk<Formula, Sum>(size, in + first...);
    }
  };
  where.for_ranges(parts, sum_chunks, 32768 / kReductionChunk);
  *out = narrow<T>(Finish()(pairwise_sum(scratch, parts)));
}

}  // namespace kernels
