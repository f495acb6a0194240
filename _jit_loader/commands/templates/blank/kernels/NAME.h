// y[i] = x[i] for every i in [0, n). The arrays are contiguous. Describe here what the op computes.
#pragma once

#include "kernels/shared/common.h"

// Results first, then inputs, then sizes, in the same order for the CPU and the GPU.
template <class T>
void NAME(kernels::Cpu where, T* y, const T* x, int64_t n);

template <class T>
void NAME(kernels::Cuda where, T* y, const T* x, int64_t n);
