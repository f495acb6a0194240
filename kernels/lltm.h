// One step of an LLTM, a recurrent cell, for a batch of rows, after the matrix product that
// computes the gates, with their bias:
//
//   i, o, c = sigmoid(g0), sigmoid(g1), elu(g2)   g0, g1, g2: the thirds of a row of gates
//   new_cell = old_cell + c * i
//   new_h = tanh(new_cell) * o
//
// gates and d_gates are (batch, 3 * state), d_bias is (3 * state), all others but sums are (batch,
// state). The arrays are contiguous but for the gradients of the results; no output may overlap
// another array.
#pragma once

#include "kernels/shared/common.h"

template <class T>
void lltm(kernels::Cpu where, T* new_h, T* new_cell, const T* gates, const T* old_cell,
          int64_t batch, int64_t state);

template <class T>
void lltm(kernels::Cuda where, T* new_h, T* new_cell, const T* gates, const T* old_cell,
          int64_t batch, int64_t state);

// d_bias is summed over this many rows at a time, then over those sums, always in the same order.
// The gradients of 512 x 512 floats take 14.8 us on an H200, and 19.9 with 64 rows. A batch of at
// most this many rows needs no second launch.
constexpr int64_t kLltmRowsPerSum = 32;

constexpr int64_t lltm_sums(int64_t batch) {
  return (batch + kLltmRowsPerSum - 1) / kLltmRowsPerSum;
}

// A matrix with any strides: the element (i, j) is data[i * row + j * column]. nullptr stands for
// zeros. The gradient of a sum, one number expanded to a matrix, is read where it is.
template <class T>
struct LltmGradientView {
  const T* data;
  int64_t row, column;
};

// The gradients with respect to gates, their bias and old_cell, from those with respect to new_h
// and new_cell. An output that is not needed is nullptr. sums is uninitialised memory for
// (lltm_sums(batch), 3 * state) values if d_bias is needed and lltm_sums(batch) > 1.
template <class T>
void lltm_backward(kernels::Cpu where, T* d_gates, T* d_bias, T* d_cell,
                   kernels::Accumulate<T>* sums, LltmGradientView<T> grad_h,
                   LltmGradientView<T> grad_cell, const T* gates, const T* new_cell, int64_t batch,
                   int64_t state);

template <class T>
void lltm_backward(kernels::Cuda where, T* d_gates, T* d_bias, T* d_cell,
                   kernels::Accumulate<T>* sums, LltmGradientView<T> grad_h,
                   LltmGradientView<T> grad_cell, const T* gates, const T* new_cell, int64_t batch,
                   int64_t state);
