#pragma once

#include "kernels/shared/half.h"
#include "kernels/shared/pair.h"

struct MyOp {
  template <class T>
  HOST_DEVICE T operator()(T x, T y) const {
    return T{3} * x - y;
  }
};

struct MyOpBackward {
  template <class T>
  HOST_DEVICE kernels::Pair<T> operator()(T g) const {
    return {T{3} * g, -g};
  }
};
