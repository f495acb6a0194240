#pragma once

#include <math.h>

#include "kernels/half.h"

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

// The gradient of one a[i]. |a - b| is at most the norm, so the quotient cannot overflow; grad /
// norm could.
template <class T>
struct TwoNormGradient {
  T grad;
  T norm;

  HOST_DEVICE T operator()(T a, T b) const { return norm == T{0} ? T{0} : grad * ((a - b) / norm); }
};
