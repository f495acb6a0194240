// The formula, here a softmax. The gradient is in bindings/NAME.py: change both.
#pragma once

#include <math.h>

#include "kernels/shared/exp.h"
#include "kernels/shared/rows.h"

// kernels/shared/rows.h says what the functions are. For a norm, x / sqrt(mean of x * x + eps), Row
// is the sum of x * x, add and join add to it, and result multiplies by 1 / sqrt(row.sum / width +
// eps).
struct Name {
  // Of some elements x, the largest, and the sum of exp(x - largest), which cannot overflow.
  template <class A>
  struct Row {
    A largest, sum;
  };

  template <class A>
  static HOST_DEVICE Row<A> none() {
    return {-static_cast<A>(INFINITY), 0};
  }

  template <class A, int n>
  static HOST_DEVICE Row<A> add(Row<A> row, const A (&x)[n]) {
    A values[n];
    for (int k = 0; k < n; ++k) values[k] = x[k];
    const A largest = Larger()(row.largest, kernels::combined<n>(values, Larger()));
    const A shift = shift_of(largest);
    for (int k = 0; k < n; ++k) values[k] = kernels::exponential(x[k] - shift);
    const A sum = kernels::combined<n>(values, Plus());
    return {largest, row.sum * kernels::exponential(row.largest - shift) + sum};
  }

  template <class A>
  static HOST_DEVICE Row<A> join(Row<A> row, Row<A> other) {
    const A largest = Larger()(row.largest, other.largest);
    const A shift = shift_of(largest);
    return {largest, row.sum * kernels::exponential(row.largest - shift) +
                         other.sum * kernels::exponential(other.largest - shift)};
  }

  template <class A>
  static HOST_DEVICE auto result(Row<A> row, A /*width*/) {
    const A largest = row.largest, factor = 1 / row.sum;
    return Result<A>{largest, factor};
  }

  template <class A>
  struct Result {
    A largest, factor;
    HOST_DEVICE A operator()(A x) const { return kernels::exponential(x - largest) * factor; }
  };

  struct Larger {
    template <class A>
    HOST_DEVICE A operator()(A a, A b) const {
      return a < b ? b : a;
    }
  };

  struct Plus {
    template <class A>
    HOST_DEVICE A operator()(A a, A b) const {
      return a + b;
    }
  };

  // 0 for -infinity, which a mask gives: exp(-infinity - -infinity) would be NaN.
  template <class A>
  static HOST_DEVICE A shift_of(A largest) {
    return largest == -static_cast<A>(INFINITY) ? 0 : largest;
  }
};
