// y[r][i] = Formula's result for x[r][i], which depends on all elements of the row x[r], on the
// CPU: a softmax or a norm of each row of a contiguous array.
//
//   rowwise<Formula>(where, y, x, rows, width)
//
// Formula is a struct of static functions. They compute in A, double or float: 16-bit inputs are
// widened to float, and each result is rounded once.
//
//   Row<A>               what is known of some elements of a row, such as their sum
//   none<A>()            the Row of no elements
//   add(row, x)          the Row of `row` and of the n elements A x[n]
//   join(row, other)     the Row of both
//   result(row, width)   a function: result(row, width)(x[i]) is y[i]
//
// `y` may be `x`. The order of all operations depends on the width alone.
#pragma once

#include "kernels/shared/common.h"

namespace kernels {

constexpr int kRowChunk = 32;       // elements that add gets at a time: its loops are vectorised
constexpr int64_t kRowPart = 4096;  // elements that are added one chunk after another

// Combines n values, a power of two, pairwise; it overwrites them. Compilers vectorise the loops.
template <int n, class A, class Combine>
HOST_DEVICE A combined(A* values, const Combine& combine) {
  for (int k = 0; k < n / 2; ++k) values[k] = combine(values[k], values[k + n / 2]);
  if constexpr (n > 2) return combined<n / 2>(values, combine);
  return values[0];
}

// The Row of n elements. The parts of a long row are joined pairwise, for the precision of sums.
template <class Formula, class A, class T>
typename Formula::template Row<A> row_of(const T* x, int64_t n) {
  if (n > kRowPart) {
    const int64_t half = n / 2 / kRowChunk * kRowChunk;
    return Formula::join(row_of<Formula, A>(x, half), row_of<Formula, A>(x + half, n - half));
  }
  auto row = Formula::template none<A>();
  int64_t i = 0;
  for (A chunk[kRowChunk]; i + kRowChunk <= n; i += kRowChunk) {
    for (int k = 0; k < kRowChunk; ++k) chunk[k] = widen(x[i + k]);
    row = Formula::add(row, chunk);
  }
  for (A one[1]; i < n; ++i) {
    one[0] = widen(x[i]);
    row = Formula::add(row, one);
  }
  return row;
}

template <class Formula, class T>
void rowwise(Cpu where, T* y, const T* x, int64_t rows, int64_t width) {
  if (width == 0) return;
  const auto some_rows = [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* from = x + r * width;
      const auto row = row_of<Formula, Accumulate<T>>(from, width);
      const auto result = Formula::result(row, static_cast<Accumulate<T>>(width));
      for (int64_t i = 0; i < width; ++i) y[r * width + i] = narrow<T>(result(widen(from[i])));
    }
  };
  where.for_ranges(rows, some_rows, 1 + 32768 / width);
}

}  // namespace kernels
