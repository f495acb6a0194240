// NAME on the GPU: the kernel is in kernels/shared/rows.cuh.
#include "kernels/NAME.h"
#include "kernels/NAME_math.h"
#include "kernels/shared/rows.cuh"

using namespace kernels;

template <class T>
void NAME(Cuda where, T* y, const T* x, int64_t rows, int64_t width) {
  rowwise<Name>(where, y, x, rows, width);
}

// Compiles it for each type that a tensor may have.
#define INSTANTIATE(T) template void NAME(Cuda, T*, const T*, int64_t, int64_t);
FOR_FLOATING(INSTANTIATE)
