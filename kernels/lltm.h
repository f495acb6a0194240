// One step of an LLTM, a recurrent cell, for a batch of rows, after the matrix product that its
// gates come from:
//
//   i, o, c = sigmoid(g0), sigmoid(g1), elu(g2)   with g0, g1, g2 the thirds of a row, gates + bias
//   new_cell = old_cell + c * i
//   new_h = tanh(new_cell) * o
//
// gates is (batch, 3 * state), bias (3 * state), all others (batch, state): contiguous arrays, of
// which no output may overlap another array.
#pragma once

#include "kernels/shared/common.h"

template <class T>
void lltm(Cpu where, T* new_h, T* new_cell, const T* gates, const T* bias, const T* old_cell,
          int64_t batch, int64_t state);

template <class T>
void lltm(Cuda where, T* new_h, T* new_cell, const T* gates, const T* bias, const T* old_cell,
          int64_t batch, int64_t state);

// d_bias is summed over this many rows at a time, and then over those sums, always in one order. On
// an H200 the gradients of 512 x 512 floats take 14.8 us, with 64 rows 19.9; up to this many rows
// need no second launch.
constexpr int64_t kLltmRowsPerSum = 32;

constexpr int64_t lltm_sums(int64_t batch) {
  return (batch + kLltmRowsPerSum - 1) / kLltmRowsPerSum;
}

// The gradients with respect to gates, bias and old_cell, from those with respect to new_h and
// new_cell; any of the five may be nullptr: an output that nobody needs, or a gradient of zeros.
// sums is scratch memory for (lltm_sums(batch), 3 * state) values where d_bias is needed and those
// are several rows.
template <class T>
void lltm_backward(Cpu where, T* d_gates, T* d_bias, T* d_cell, Accumulate<T>* sums,
                   const T* grad_h, const T* grad_cell, const T* gates, const T* bias,
                   const T* new_cell, int64_t batch, int64_t state);

template <class T>
void lltm_backward(Cuda where, T* d_gates, T* d_bias, T* d_cell, Accumulate<T>* sums,
                   const T* grad_h, const T* grad_cell, const T* gates, const T* bias,
                   const T* new_cell, int64_t batch, int64_t state);
