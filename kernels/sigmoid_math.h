#pragma once

#include "kernels/exp.h"

// From e^-|x|, which cannot overflow; e^-x would, and lose the results that are subnormal.
struct Sigmoid {
  template <class T>
  HOST_DEVICE T operator()(T x) const {
    const T e = exponential(choose(x < T{0}, x, -x));
    const T r = reciprocal(T{1} + e);
    return choose(x < T{0}, e, T{1}) * r;
  }
};

struct SigmoidBackward {
  template <class T>
  HOST_DEVICE T operator()(T g, T y) const {
    return g * (y * (T{1} - y));
  }
};
