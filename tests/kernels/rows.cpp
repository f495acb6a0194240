// The norm x / sqrt(mean of x * x + eps) of each row, as another formula of kernels/shared/rows.h.
#include "kernels/shared/rows.h"

#include <math.h>

using namespace kernels;

struct Norm {
  template <class A>
  struct Row {
    A squares;
  };

  template <class A>
  static HOST_DEVICE Row<A> none() {
    return {0};
  }

  template <class A, int n>
  static HOST_DEVICE Row<A> add(Row<A> row, const A (&x)[n]) {
    A squares[n];
    for (int k = 0; k < n; ++k) squares[k] = x[k] * x[k];
    return {row.squares + combined<n>(squares, [](A a, A b) { return a + b; })};
  }

  template <class A>
  static HOST_DEVICE Row<A> join(Row<A> row, Row<A> other) {
    return {row.squares + other.squares};
  }

  template <class A>
  static HOST_DEVICE auto result(Row<A> row, A width) {
    const A factor = 1 / sqrt(row.squares / width + static_cast<A>(1e-6));
    return [factor](A x) { return x * factor; };
  }
};

extern "C" void norm_float(float* y, const float* x, int64_t rows, int64_t width) {
  rowwise<Norm>(Cpu{}, y, x, rows, width);
}

extern "C" void norm_double(double* y, const double* x, int64_t rows, int64_t width) {
  rowwise<Norm>(Cpu{}, y, x, rows, width);
}
