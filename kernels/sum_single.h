// *sum = x[0] + ... + x[n - 1]: a contiguous array; 0 if it is empty. `scratch` is as
// kernels/shared/partial_sums.h says.
#pragma once

#include "kernels/shared/partial_sums.h"

template <class T>
void sum_single(Cpu where, T* sum, Accumulate<T>* scratch, const T* x, int64_t n);

template <class T>
void sum_single(Cuda where, T* sum, Accumulate<T>* scratch, const T* x, int64_t n);
