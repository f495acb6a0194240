// z[i] = 3 x[i] - y[i] for every i in [0, n), and its gradients dx[i] = 3 g[i] and dy[i] = -g[i].
// The arrays are contiguous; a result may be one of the inputs.
#pragma once

#include "kernels/shared/common.h"

template <class T>
void my_op(kernels::Cpu where, T* z, const T* x, const T* y, int64_t n);

template <class T>
void my_op(kernels::Cuda where, T* z, const T* x, const T* y, int64_t n);

template <class T>
void my_op_backward(kernels::Cpu where, T* dx, T* dy, const T* g, int64_t n);

template <class T>
void my_op_backward(kernels::Cuda where, T* dx, T* dy, const T* g, int64_t n);
