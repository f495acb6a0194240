#include "kernels/shared/reduction.cuh"
#include "kernels/sum_single.h"

using namespace kernels;

template <class T>
void sum_single(Cuda where, T* sum, Accumulate<T>* scratch, const T* x, int64_t n) {
  reduce<Identity, Identity>(where, n, sum, scratch, x);
}

#define INSTANTIATE(T) template void sum_single(Cuda, T*, Accumulate<T>*, const T*, int64_t);
FOR_FLOATING(INSTANTIATE)
