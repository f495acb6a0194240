// y[i] = x[i] * x[i] for every i in [0, n): contiguous arrays; y may be x.
#pragma once

#include "kernels/shared/common.h"

template <class T>
void NAME(Cpu where, T* y, const T* x, int64_t n);

template <class T>
void NAME(Cuda where, T* y, const T* x, int64_t n);
