// *sum = x[0] + ... + x[n - 1] for a contiguous array; 0 if it is empty. `scratch` is memory as in
// kernels/shared/partial_sums.h.
#pragma once

#include "kernels/shared/partial_sums.h"

template <class T>
void sum_single(kernels::Cpu where, T* sum, kernels::Accumulate<T>* scratch, const T* x, int64_t n);

template <class T>
void sum_single(kernels::Cuda where, T* sum, kernels::Accumulate<T>* scratch, const T* x,
                int64_t n);
