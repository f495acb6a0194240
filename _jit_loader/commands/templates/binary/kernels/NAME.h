// c[i] = a[i] * b[i] for every i in [0, n). The arrays are contiguous; c may be a or b.
#pragma once

#include "kernels/shared/common.h"

template <class T>
void NAME(kernels::Cpu where, T* c, const T* a, const T* b, int64_t n);

template <class T>
void NAME(kernels::Cuda where, T* c, const T* a, const T* b, int64_t n);
