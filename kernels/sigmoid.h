// y[i] = 1 / (1 + exp(-x[i])) for every i in [0, n), and its gradient dx[i] = g[i] y[i] (1 - y[i]).
// The arrays are contiguous; a result may be one of the inputs.
#pragma once

#include "kernels/shared/common.h"

template <class T>
void sigmoid(kernels::Cpu where, T* y, const T* x, int64_t n);

template <class T>
void sigmoid(kernels::Cuda where, T* y, const T* x, int64_t n);

template <class T>
void sigmoid_backward(kernels::Cpu where, T* dx, const T* g, const T* y, int64_t n);

template <class T>
void sigmoid_backward(kernels::Cuda where, T* dx, const T* g, const T* y, int64_t n);
