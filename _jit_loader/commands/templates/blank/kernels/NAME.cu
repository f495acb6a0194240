// NAME on the GPU.
#include "kernels/NAME.h"
#include "kernels/shared/common.cuh"

using namespace kernels;

constexpr int kThreads = 256;  // per block

// Each thread computes one element.
template <class T>
__global__ void __launch_bounds__(kThreads) one_element_each(T* y, const T* x, int64_t n) {
  // 64 bits, since n may exceed the range of int.
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;                       // the last block may have more threads than elements
  const Accumulate<T> value = widen(x[i]);  // double or float: 16-bit numbers become float
  const Accumulate<T> result = value;       // your formula
  y[i] = narrow<T>(result);
}

template <class T>
void NAME(Cuda where, T* y, const T* x, int64_t n) {
  if (n == 0) return;  // a launch of 0 blocks is an error
  const unsigned blocks = blocks_for(n, kThreads);
  one_element_each<<<blocks, kThreads, 0, stream_of(where)>>>(y, x, n);
  check_launch(__PRETTY_FUNCTION__);
}

// Compiles it for each type that a tensor may have.
#define INSTANTIATE(T) template void NAME(Cuda, T*, const T*, int64_t);
FOR_FLOATING(INSTANTIATE)
