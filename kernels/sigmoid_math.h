#pragma once

#include "kernels/shared/exp.h"

// Below -88 for float e^-x is infinite and the result 0, as PyTorch's, where it would be subnormal.
// From e^-|x|, which keeps those, 2^16 floats take 66 us on a CPU instead of 51 (PyTorch 55).
struct Sigmoid {
  template <class T>
  HOST_DEVICE T operator()(T x) const {
    return reciprocal(T{1} + exponential(-x));
  }
};

struct SigmoidBackward {
  template <class T>
  HOST_DEVICE T operator()(T g, T y) const {
    return g * (y * (T{1} - y));
  }
};
