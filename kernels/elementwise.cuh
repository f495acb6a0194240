// out[i] = Formula()(in[i]...) for every i in [0, n), on the current CUDA device.
//
// Formula is a struct with a template operator() over the type it computes in: 16-bit inputs
// arrive as float and the result is rounded once. All arrays hold n contiguous elements of one
// type; `out` may be one of the inputs, but must not partly overlap one.
//
// One 16-byte vector per thread: 4.41 TB/s for an addition on an H200, where a grid-stride loop
// over 8 blocks per multiprocessor reaches 4.09 and one float per thread 2.32. Arrays that do not
// begin at a multiple of 16 bytes are read element by element.
#pragma once

#include "kernels/common.cuh"

constexpr int kThreadsPerBlock = 256;

template <class T>
constexpr int kLanes = 16 / sizeof(T);

template <class T>
struct Vector {
  T lane[kLanes<T>];
};

// Through uint4, which is one 16-byte instruction for 8 lanes of 16 bits as well.
template <class T>
__device__ Vector<T> load_vector(const T* from) {
  const uint4 bits = *reinterpret_cast<const uint4*>(from);
  Vector<T> vector;
  memcpy(&vector, &bits, sizeof(bits));
  return vector;
}

template <class T>
__device__ void store_vector(T* to, const Vector<T>& vector) {
  uint4 bits;
  memcpy(&bits, &vector, sizeof(bits));
  *reinterpret_cast<uint4*>(to) = bits;
}

template <class Formula, class T, class... In>
__device__ Vector<T> formula_of_vectors(const Vector<In>&... in) {
  Vector<T> result;
#pragma unroll
  for (int i = 0; i < kLanes<T>; ++i) result.lane[i] = narrow<T>(Formula()(widen(in.lane[i])...));
  return result;
}

template <class Formula, class T, class... In>
__global__ void __launch_bounds__(kThreadsPerBlock)
    elementwise_vectors(int64_t n, T* out, const In*... in) {
  const int64_t begin = (int64_t{blockIdx.x} * kThreadsPerBlock + threadIdx.x) * kLanes<T>;
  if (begin + kLanes<T> <= n) {
    store_vector(out + begin, formula_of_vectors<Formula, T>(load_vector(in + begin)...));
  } else {
    for (int64_t i = begin; i < n; ++i) out[i] = narrow<T>(Formula()(widen(in[i])...));
  }
}

template <class Formula, class T, class... In>
__global__ void __launch_bounds__(kThreadsPerBlock)
    elementwise_scalars(int64_t n, T* out, const In*... in) {
  int64_t i = int64_t{blockIdx.x} * kThreadsPerBlock * kLanes<T> + threadIdx.x;
#pragma unroll
  for (int lane = 0; lane < kLanes<T>; ++lane, i += kThreadsPerBlock) {
    if (i < n) out[i] = narrow<T>(Formula()(widen(in[i])...));
  }
}

template <class Formula, class T, class... In>
void elementwise(Cuda where, int64_t n, T* out, const In*... in) {
  if (n == 0) return;
  constexpr int64_t per_block = int64_t{kThreadsPerBlock} * kLanes<T>;
  const auto grid = static_cast<unsigned>((n + per_block - 1) / per_block);
  const bool aligned =
      ((reinterpret_cast<uintptr_t>(out) | ... | reinterpret_cast<uintptr_t>(in)) % 16) == 0;
  const auto kernel =
      aligned ? elementwise_vectors<Formula, T, In...> : elementwise_scalars<Formula, T, In...>;
  kernel<<<grid, kThreadsPerBlock, 0, stream_of(where)>>>(n, out, in...);
  check_launch(__PRETTY_FUNCTION__);
}
