// c[i] = a[i] * b[i] for every i in [0, n): contiguous arrays; c may be a or b.
#pragma once

#include "kernels/shared/common.h"

template <class T>
void NAME(Cpu where, T* c, const T* a, const T* b, int64_t n);

template <class T>
void NAME(Cuda where, T* c, const T* a, const T* b, int64_t n);
