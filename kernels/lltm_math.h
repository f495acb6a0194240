#pragma once

#include "kernels/shared/pair.h"
#include "kernels/shared/tanh.h"
#include "kernels/sigmoid_math.h"

// ELU with alpha = 1: x above 0, e^x - 1 below.
template <class T>
HOST_DEVICE T elu(T x) {
  const T negative = kernels::select(x > T{0}, T{0}, x);
  return kernels::select(x > T{0}, x, kernels::exponential_minus_one(negative));
}

// 1 for x >= 0, e^x below 0. The exponential of a positive x is never computed.
template <class T>
HOST_DEVICE T elu_derivative(T x) {
  return kernels::exponential(kernels::select(x > T{0}, T{0}, x));
}

// (new_h, new_cell) of one element. Its gates are g0 (input), g1 (output) and g2 (candidate).
template <class T>
HOST_DEVICE kernels::Pair<T> lltm_element(T g0, T g1, T g2, T old_cell) {
  const T new_cell = old_cell + elu(g2) * Sigmoid()(g0);
  return {kernels::hyperbolic_tangent(new_cell) * Sigmoid()(g1), new_cell};
}

// The gradients of one element: of the gates g0, g1 and g2, and of the old cell.
template <class T>
struct LltmGradient {
  T gate[3];
  T cell;
};

template <class T>
HOST_DEVICE LltmGradient<T> lltm_element_gradient(T grad_h, T grad_cell, T g0, T g1, T g2,
                                                  T new_cell) {
  const T i = Sigmoid()(g0), o = Sigmoid()(g1), t = kernels::hyperbolic_tangent(new_cell);
  const T d_cell = (T{1} - t * t) * (o * grad_h) + grad_cell;
  return {{elu(g2) * d_cell * (i * (T{1} - i)), t * grad_h * (o * (T{1} - o)),
           i * d_cell * elu_derivative(g2)},
          d_cell};
}
