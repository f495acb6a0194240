// two_norm: *norm = sqrt((a[0] - b[0])^2 + ... + (a[n - 1] - b[n - 1])^2), 0 for empty arrays.
// `scratch` is memory as in kernels/shared/partial_sums.h; norm may point into a or b.
//
// two_norm_backward: da[i] = *grad * (a[i] - b[i]) / *norm and db[i] = -da[i] for every i in
// [0, n), or 0 if *norm is 0. If db is nullptr, it is not written. da and db may be a and b.
//
// All arrays are contiguous.
#pragma once

#include "kernels/shared/partial_sums.h"

template <class T>
void two_norm(kernels::Cpu where, T* norm, kernels::Accumulate<T>* scratch, const T* a, const T* b,
              int64_t n);

template <class T>
void two_norm(kernels::Cuda where, T* norm, kernels::Accumulate<T>* scratch, const T* a, const T* b,
              int64_t n);

template <class T>
void two_norm_backward(kernels::Cpu where, T* da, T* db, const T* grad, const T* a, const T* b,
                       const T* norm, int64_t n);

template <class T>
void two_norm_backward(kernels::Cuda where, T* da, T* db, const T* grad, const T* a, const T* b,
                       const T* norm, int64_t n);
