// What is added up. The gradient is in bindings/NAME.py: change both.
#pragma once

#include "kernels/shared/half.h"

// What an element adds to the result.
struct Name {
  // T is double or float: 16-bit numbers come as float, are added up as float, and the result is
  // rounded once.
  template <class T>
  HOST_DEVICE T operator()(T x) const {
    return x * x;
  }
};
