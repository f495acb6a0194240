// *y = x[0] * x[0] + ... + x[n - 1] * x[n - 1] for a contiguous array; 0 if it is empty. `scratch`
// is memory from the caller; kernels/shared/partial_sums.h gives its size.
#pragma once

#include "kernels/shared/partial_sums.h"

template <class T>
void NAME(kernels::Cpu where, T* y, kernels::Accumulate<T>* scratch, const T* x, int64_t n);

template <class T>
void NAME(kernels::Cuda where, T* y, kernels::Accumulate<T>* scratch, const T* x, int64_t n);
