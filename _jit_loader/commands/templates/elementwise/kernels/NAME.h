// y[i] = x[i] * x[i] for every i in [0, n). The arrays are contiguous; y may be x.
#pragma once

#include "kernels/shared/common.h"

template <class T>
void NAME(kernels::Cpu where, T* y, const T* x, int64_t n);

template <class T>
void NAME(kernels::Cuda where, T* y, const T* x, int64_t n);
