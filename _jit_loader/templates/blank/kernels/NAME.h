// y[i] = x[i] for every i in [0, n): contiguous arrays. Say here what the op computes.
#pragma once

#include "kernels/shared/common.h"

// Results first, then inputs, then sizes; the same for CPU and GPU.
template <class T>
void NAME(Cpu where, T* y, const T* x, int64_t n);

template <class T>
void NAME(Cuda where, T* y, const T* x, int64_t n);
