// y[r][i] = exp(x[r][i]) / (the sum of exp(x[r])) for each row r of a contiguous array of rows *
// width elements.
#pragma once

#include "kernels/shared/common.h"

template <class T>
void NAME(kernels::Cpu where, T* y, const T* x, int64_t rows, int64_t width);

template <class T>
void NAME(kernels::Cuda where, T* y, const T* x, int64_t rows, int64_t width);
