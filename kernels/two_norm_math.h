#pragma once

#include <math.h>

#include "kernels/shared/half.h"

struct SquaredDifference {
  template <class T>
  HOST_DEVICE T operator()(T a, T b) const {
    return (a - b) * (a - b);
  }
};

struct SquareRoot {
  template <class T>
  HOST_DEVICE T operator()(T x) const {
    return sqrt(x);
  }
};

// The gradient of one a[i]: grad * (a - b) / norm, or 0 if the norm is 0.
//
// It divides once for all elements: with a division for each, 2^28 bfloat16 elements take 568 us on
// an H200 instead of 509. 1 / norm cannot overflow, since the norm is the square root of a number
// of the same type.
template <class T>
class TwoNormGradient {
 public:
  HOST_DEVICE TwoNormGradient(T grad, T norm)
      : grad_(norm == T{0} ? T{0} : grad), inverse_(norm == T{0} ? T{0} : T{1} / norm) {}

  // |a - b| is at most the norm, so this product cannot overflow; grad * (a - b) could.
  HOST_DEVICE T operator()(T a, T b) const { return grad_ * ((a - b) * inverse_); }

 private:
  T grad_;
  T inverse_;
};
