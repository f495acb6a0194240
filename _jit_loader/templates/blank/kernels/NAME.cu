// NAME on the GPU.
#include "kernels/NAME.h"
#include "kernels/shared/common.cuh"

constexpr int kThreads = 256;  // of a block

// One thread for each element.
template <class T>
__global__ void __launch_bounds__(kThreads) one_element_each(T* y, const T* x, int64_t n) {
  // In 64 bits, because n may be more than an int can count.
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;                       // the last block has threads to spare
  const Accumulate<T> value = widen(x[i]);  // double or float: 16-bit numbers come as float
  const Accumulate<T> result = value;       // your formula
  y[i] = narrow<T>(result);
}

template <class T>
void NAME(Cuda where, T* y, const T* x, int64_t n) {
  if (n == 0) return;  // CUDA refuses to launch no blocks
  const unsigned blocks = blocks_for(n, kThreads);
  one_element_each<<<blocks, kThreads, 0, stream_of(where)>>>(y, x, n);
  check_launch(__PRETTY_FUNCTION__);
}

// Compiles it for every type that a tensor may have.
#define INSTANTIATE(T) template void NAME(Cuda, T*, const T*, int64_t);
FOR_FLOATING(INSTANTIATE)
