// NAME on the GPU: the kernel is in kernels/shared/reduction.cuh.
#include "kernels/NAME.h"
#include "kernels/NAME_math.h"
#include "kernels/shared/reduction.cuh"

using namespace kernels;

// Identity: the function applied to the final sum, here none. A norm would apply a square root.
template <class T>
void NAME(Cuda where, T* y, Accumulate<T>* scratch, const T* x, int64_t n) {
  reduce<Name, Identity>(where, n, y, scratch, x);
}

// Compiles it for each type that a tensor may have.
#define INSTANTIATE(T) template void NAME(Cuda, T*, Accumulate<T>*, const T*, int64_t);
FOR_FLOATING(INSTANTIATE)
