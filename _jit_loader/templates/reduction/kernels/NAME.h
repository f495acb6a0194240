// *y = x[0] * x[0] + ... + x[n - 1] * x[n - 1]: a contiguous array; 0 if it is empty. `scratch` is
// the caller's memory, of which kernels/shared/partial_sums.h says how much.
#pragma once

#include "kernels/shared/partial_sums.h"

template <class T>
void NAME(Cpu where, T* y, Accumulate<T>* scratch, const T* x, int64_t n);

template <class T>
void NAME(Cuda where, T* y, Accumulate<T>* scratch, const T* x, int64_t n);
