#pragma once

#include "kernels/exp.h"

// From e^-|x|, which cannot overflow; e^-x would, and lose the results that are subnormal.
struct Sigmoid {
  template <class T>
  HOST_DEVICE T operator()(T x) const {
    const T e = exponential(choose(x < T{0}, x, -x));
    const T r = reciprocal(T{1} + e);
    // Not choose(x < 0, e, 1) * r: float16 then reached 3.96 TB/s on an H200 instead of 4.16.
    return choose(x < T{0}, e * r, r);
  }
};

struct SigmoidBackward {
  template <class T>
  HOST_DEVICE T operator()(T g, T y) const {
    return g * (y * (T{1} - y));
  }
};
