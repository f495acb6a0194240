// out[i] = Formula()(in[i]...) for every i in [0, n), on the CPU.
//
//   elementwise<Formula>(where, n, out, in...)
//
// Formula is a struct with a templated operator() that computes in double or float: 16-bit inputs
// are widened to float, and the result is rounded once. `out` is an array, or a Pair of arrays if
// the formula returns a Pair. All arrays hold n contiguous elements of one type. `out` may be one
// of the inputs, but must not partly overlap one.
#pragma once

#include <type_traits>

#include "kernels/shared/block.h"
#include "kernels/shared/common.h"
#include "kernels/shared/pair.h"

namespace kernels {

template <class T>
void store(T* to, int64_t i, Accumulate<T> value) {
  to[i] = narrow<T>(value);
}

template <class T, class A>
void store(Pair<T*> to, int64_t i, Pair<A> value) {
  store(to.first, i, value.first);
  store(to.second, i, value.second);
}

template <class Formula, class T, class... In>
void apply_to_blocks(T* to, const Block<In>&... in) {
  Block<T> result;
  for (int i = 0; i < kBlock; ++i) result.value[i] = Formula()(in.value[i]...);
  store_block(to, result);
}

template <class Formula, class T, class... In>
void apply_to_blocks(Pair<T*> to, const Block<In>&... in) {
  Block<T> first, second;
  for (int i = 0; i < kBlock; ++i) {
    const auto result = Formula()(in.value[i]...);
    first.value[i] = result.first;
    second.value[i] = result.second;
  }
  store_block(to.first, first);
  store_block(to.second, second);
}

template <class T>
T* offset_by(T* out, int64_t i) {
  return out + i;
}

template <class T>
Pair<T*> offset_by(Pair<T*> out, int64_t i) {
  return {out.first + i, out.second + i};
}

template <class Formula, class Out, class... In>
void elementwise(Cpu where, int64_t n, Out out, const In*... in) {
  where.for_ranges(n, [=](int64_t begin, int64_t end) {
    int64_t i = begin;
    if constexpr ((std::is_same_v<In, Half> && ...)) {
      for (; i + kBlock <= end; i += kBlock) {
        apply_to_blocks<Formula>(offset_by(out, i), load_block(in + i)...);
      }
    }
    for (; i < end; ++i) store(out, i, Formula()(widen(in[i])...));
  });
}

}  // namespace kernels
