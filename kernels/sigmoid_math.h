#pragma once

#include "kernels/shared/exp.h"

// For float x below -88, e^-x is infinity and the result is 0, as in PyTorch; the exact result
// would be subnormal. A formula with e^-|x| gives those results, but takes 66 us for 2^16 floats on
// a CPU, while this takes 51 and PyTorch 55.
struct Sigmoid {
  template <class T>
  HOST_DEVICE T operator()(T x) const {
    return kernels::reciprocal(T{1} + kernels::exponential(-x));
  }
};

struct SigmoidBackward {
  template <class T>
  HOST_DEVICE T operator()(T g, T y) const {
    return g * (y * (T{1} - y));
  }
};
