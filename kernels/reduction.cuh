// *out = Finish()(the sum of Formula()(in[i]...) over every i in [0, n)), on the current CUDA
// device; the sum of no elements is 0.
//
// Formula and Finish are structs with a template operator() over the type that is computed in:
// 16-bit inputs arrive as float, are accumulated as float, and the result is rounded once. All
// arrays hold n contiguous elements of one type; `out` may be one of their elements. `scratch` is
// the caller's memory for partial_sums(where, n) values, whose content before and after means
// nothing; a later call in the same stream may use it again.
//
// Every addition has its place, which depends on n alone. Two launches of one kernel rather than
// one in which the last block adds the others' sums: that needs a counter which begins at 0, and
// setting it is a launch too. The second is launched while the first runs (programmatic dependent
// launch): the sum of 2^20 floats takes 7.4 us on an H200 rather than 8.7, of 2^14 5.6 rather than
// 6.8.
#pragma once

#include "kernels/elementwise.cuh"
#include "kernels/partial_sums.h"

constexpr int kWarp = 32;
constexpr int kReducingThreads = 256;

// The sum of `value` over the threads of the block, valid in thread 0. Every thread must call it,
// once in a kernel.
template <class Sum>
__device__ Sum block_sum(Sum value) {
  __shared__ Sum warps[kReducingThreads / kWarp];
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_down_sync(0xffffffffu, value, distance);
  }
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  Sum sum = warps[0];
#pragma unroll
  for (int warp = 1; warp < kReducingThreads / kWarp; ++warp) sum += warps[warp];
  return sum;
}

// Waits until the kernel before in the stream has ended and its memory can be read, where this one
// was launched before that.
__device__ inline void wait_for_the_kernel_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the kernel behind in the stream be launched, if it will wait as above.
__device__ inline void let_the_next_kernel_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

template <class Formula, class Sum, class T, class... In>
__device__ void add_vectors(Sum* lanes, const Vector<T>& first, const Vector<In>&... rest) {
#pragma unroll
  for (int lane = 0; lane < kLanes<T>; ++lane) {
    lanes[lane] += Formula()(widen(first.lane[lane]), widen(rest.lane[lane])...);
  }
}

// A thread's own sums, one for each lane of its vectors, in pairs.
template <int count, class Sum>
__device__ Sum sum_in_pairs(const Sum* lanes) {
  if constexpr (count == 1) {
    return lanes[0];
  } else {
    return sum_in_pairs<count / 2>(lanes) + sum_in_pairs<count / 2>(lanes + count / 2);
  }
}

// Every block sums its tiles: the one of its own number, and every gridDim.x further. An only block
// writes *out, the others scratch[block].
//
// All loads of a tile are under way before the first is used: 64 bytes of each array per thread for
// float, 32 for 16-bit types, 128 for double. Arrays that do not begin at a multiple of 16 bytes
// are read element by element, in the same order.
template <class Formula, class Finish, class Out, class T, class... In>
__global__ void __launch_bounds__(kReducingThreads)
    reduce_tiles(int64_t n, bool aligned, Out* out, Accumulate<T>* scratch, const T* first,
                 const In*... rest) {
  constexpr int kStride = kReducingThreads * kLanes<T>;
  constexpr int kSteps = kTile / kStride;
  if (gridDim.x == 1) {
    wait_for_the_kernel_before();
  } else {
    let_the_next_kernel_wait();
  }
  Accumulate<T> lanes[kLanes<T>] = {};
  for (int64_t tile = blockIdx.x * kTile; tile < n; tile += gridDim.x * kTile) {
    const int64_t begin = tile + threadIdx.x * kLanes<T>;
    if (aligned && tile + kTile <= n) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int64_t i = begin + step * kStride;
        add_vectors<Formula>(lanes, load_vector(first + i), load_vector(rest + i)...);
      }
    } else {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int lane = 0; lane < kLanes<T>; ++lane) {
          const int64_t i = begin + step * kStride + lane;
          if (i < n) lanes[lane] += Formula()(widen(first[i]), widen(rest[i])...);
        }
      }
    }
  }
  const auto sum = block_sum(sum_in_pairs<kLanes<T>>(lanes));
  if (threadIdx.x != 0) return;
  if (gridDim.x == 1) {
    *out = narrow<Out>(Finish()(sum));
  } else {
    scratch[blockIdx.x] = sum;
  }
}

// Whether the kernel's code on the current device waits for the kernel before it. PTX for an older
// architecture does not, on a device that could.
template <class Kernel>
bool waits_for_the_kernel_before(Kernel* kernel) {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.ptxVersion >= 90;
}

// `early`: it may be launched while the kernel before in the stream still runs.
template <class Formula, class Finish, class Out, class T, class... In>
void launch_reduce_tiles(Cuda where, int64_t blocks, bool early, int64_t n, Out* out,
                         Accumulate<T>* scratch, const T* first, const In*... rest) {
  const bool aligned = ((address_bits(first) | ... | address_bits(rest)) % 16) == 0;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(static_cast<unsigned>(blocks));
  launch.blockDim = dim3(kReducingThreads);
  launch.stream = stream_of(where);
  launch.attrs = &attribute;
  const auto kernel = reduce_tiles<Formula, Finish, Out, T, In...>;
  launch.numAttrs = early && waits_for_the_kernel_before(kernel) ? 1 : 0;
  cudaLaunchKernelEx(&launch, kernel, n, aligned, out, scratch, first, rest...);
  check_launch(__PRETTY_FUNCTION__);
}

template <class Formula, class Finish, class T, class... In>
void reduce(Cuda where, int64_t n, T* out, Accumulate<T>* scratch, const In*... in) {
  const int64_t parts = partial_sums(where, n);
  launch_reduce_tiles<Formula, Finish>(where, parts == 0 ? 1 : parts, false, n, out, scratch,
                                       in...);
  if (parts == 0) return;
  const Accumulate<T>* sums = scratch;
  launch_reduce_tiles<Identity, Finish>(where, 1, true, parts, out, scratch, sums);
}
