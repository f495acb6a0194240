// NAME on the GPU: the kernel is in kernels/shared/elementwise.cuh.
#include "kernels/NAME.h"
#include "kernels/NAME_math.h"
#include "kernels/shared/elementwise.cuh"

using namespace kernels;

template <class T>
void NAME(Cuda where, T* y, const T* x, int64_t n) {
  elementwise<Name>(where, n, y, x);
}

// Compiles it for each type that a tensor may have.
#define INSTANTIATE(T) template void NAME(Cuda, T*, const T*, int64_t);
FOR_FLOATING(INSTANTIATE)
