// c[i] = a[i] + b[i] for every i in [0, n). The arrays are contiguous; c may be a or b.
#pragma once

#include "kernels/shared/common.h"

template <class T>
void add2(kernels::Cpu where, T* c, const T* a, const T* b, int64_t n);

template <class T>
void add2(kernels::Cuda where, T* c, const T* a, const T* b, int64_t n);
