// *out = Finish()(the sum of Formula()(in[i]...) over every i in [0, n)), on the current CUDA
// device; the sum of no elements is 0.
//
//   reduce<Formula, Finish>(where, n, out, scratch, in...)
//
// Formula and Finish are structs with a templated operator() that computes in double or float:
// 16-bit inputs are widened to float and accumulated as float, and the result is rounded once. All
// arrays hold n contiguous elements of one type; `out` may be one of their elements. `scratch` is
// uninitialised memory for partial_sums(where, n) values; a later call in the same stream may use
// it again.
//
// The order of all additions depends on n alone. If one block is not enough, a second launch adds
// the blocks' sums. In a single launch the last block would add them, which needs a counter that
// starts at 0, and setting it takes another launch. The second launch begins while the first runs
// (programmatic dependent launch): on an H200 alone, without the host's part, the sum of 2^20
// floats takes 7.4 us, and 8.7 without that (by hand, on 2026-11-22).
#pragma once

#include "kernels/shared/elementwise.cuh"
#include "kernels/shared/partial_sums.h"

namespace kernels {

constexpr int kSmallBlockSize = 256;
constexpr int kLargeBlockSize = 1024;
constexpr int kElementsPerThread = kReductionTile / kSmallBlockSize;

// The blocks of a grid are small. A single block is small up to this size: 2^12 floats take 1.4 us
// with a small block and 2.3 with a large one, 2^14 2.2 and 2.1, 2^16 4.8 and 3.0 (on an H200, in
// a CUDA graph).
constexpr int64_t kMaxElementsOfSmallBlock = 2 * kReductionTile;

// The sum of `value` over the threads of the block, valid in thread 0. Every thread must call it,
// and only once in a kernel.
template <int threads, class Sum>
__device__ Sum block_sum(Sum value) {
  __shared__ Sum warps[threads / kWarpSize];
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    value += __shfl_down_sync(0xffffffffu, value, distance);
  }
  if (threadIdx.x % kWarpSize == 0) warps[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  Sum sum = warps[0];
#pragma unroll
  for (int warp = 1; warp < threads / kWarpSize; ++warp) sum += warps[warp];
  return sum;
}

// cudaGridDependencySynchronize: if this kernel was launched early, waits until the previous one in
// the stream has ended and its results are visible.
__device__ inline void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// cudaTriggerProgrammaticLaunchCompletion: the next kernel in the stream may be launched early, if
// it waits as above.
__device__ inline void allow_next_kernel_to_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

template <class Formula, class Sum, class T, class... In>
__device__ void add_vectors(Sum* sums, const AlignedVector<T>& first,
                            const AlignedVector<In>&... rest) {
#pragma unroll
  for (int element = 0; element < kVectorSize<T>; ++element) {
    sums[element] += Formula()(widen(first.value[element]), widen(rest.value[element])...);
  }
}

// The pairwise sum of a thread's sums, one for each element of its vectors.
template <int count, class Sum>
__device__ Sum pairwise_sum(const Sum* sums) {
  if constexpr (count == 1) {
    return sums[0];
  } else {
    return pairwise_sum<count / 2>(sums) + pairwise_sum<count / 2>(sums + count / 2);
  }
}

// Each block sums the tile of its index, then every gridDim.x-th tile after it. A single block
// writes *out; several blocks write scratch[block].
//
// Of each array and tile a thread reads 64 bytes for float, 32 for 16-bit types and 128 for double.
// Several loads are issued before the first result is used: all 4 in a sum of floats, 3 of 8 for
// doubles, 4 of 8 in two_norm of floats (nvcc 13.0 for sm_90). Arrays that are not aligned to 16
// bytes are read element by element, in the same order.
template <int threads, class Formula, class Finish, class Out, class T, class... In>
__global__ void __launch_bounds__(threads)
    reduce_tiles(int64_t n, bool aligned, Out* out, Accumulate<T>* scratch, const T* first,
                 const In*... rest) {
  constexpr int kStep = threads * kVectorSize<T>;
  constexpr int kSteps = kElementsPerThread / kVectorSize<T>;
  constexpr int64_t kTileOfBlock = threads * kElementsPerThread;
  if (gridDim.x == 1) {
    wait_for_previous_kernel();
  } else {
    allow_next_kernel_to_launch();
  }
  Accumulate<T> sums[kVectorSize<T>] = {};
  for (int64_t tile = blockIdx.x * kTileOfBlock; tile < n; tile += gridDim.x * kTileOfBlock) {
    const int64_t begin = tile + threadIdx.x * kVectorSize<T>;
    if (aligned && tile + kTileOfBlock <= n) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int64_t i = begin + step * kStep;
        add_vectors<Formula>(sums, load_vector(first + i), load_vector(rest + i)...);
      }
    } else {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int element = 0; element < kVectorSize<T>; ++element) {
          const int64_t i = begin + step * kStep + element;
          if (i < n) sums[element] += Formula()(widen(first[i]), widen(rest[i])...);
        }
      }
    }
  }
  const auto sum = block_sum<threads>(pairwise_sum<kVectorSize<T>>(sums));
  if (threadIdx.x != 0) return;
  if (gridDim.x == 1) {
    *out = narrow<Out>(Finish()(sum));
  } else {
    scratch[blockIdx.x] = sum;
  }
}

// Returns whether the kernel's code on the current device waits for the previous kernel. Code from
// the PTX of an older architecture does not, even on a device that supports it.
template <class Kernel>
bool waits_for_previous_kernel(Kernel* kernel) {
  enum State : char { kUnknown, kNo, kYes };
  constexpr int kDevices = 64;
  // Cached, because the query is a driver call before every second launch. All kernels of one type
  // share the state, since they are compiled together.
  static thread_local State states[kDevices];
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device >= kDevices) return false;
  if (states[device] == kUnknown) {
    cudaFuncAttributes attributes{};
    const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
    states[device] = error == cudaSuccess && attributes.ptxVersion >= 90 ? kYes : kNo;
  }
  return states[device] == kYes;
}

// `early`: the kernel may be launched while the previous one in the stream still runs.
template <int threads, class Formula, class Finish, class Out, class T, class... In>
void launch_reduce_tiles(Cuda where, int64_t blocks, bool early, int64_t n, Out* out,
                         Accumulate<T>* scratch, const T* first, const In*... rest) {
  const bool aligned = ((address_bits(first) | ... | address_bits(rest)) % 16) == 0;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(static_cast<unsigned>(blocks));
  launch.blockDim = dim3(threads);
  launch.stream = stream_of(where);
  launch.attrs = &attribute;
  const auto kernel = reduce_tiles<threads, Formula, Finish, Out, T, In...>;
  launch.numAttrs = early && waits_for_previous_kernel(kernel) ? 1 : 0;
  cudaLaunchKernelEx(&launch, kernel, n, aligned, out, scratch, first, rest...);
  check_launch(__PRETTY_FUNCTION__);
}

template <class Formula, class Finish, class Out, class T, class... In>
void launch_one_block(Cuda where, bool early, int64_t n, Out* out, const T* first,
                      const In*... rest) {
  Accumulate<T>* const no_scratch = nullptr;
  if (n <= kMaxElementsOfSmallBlock) {
    launch_reduce_tiles<kSmallBlockSize, Formula, Finish>(where, 1, early, n, out, no_scratch,
                                                          first, rest...);
  } else {
    launch_reduce_tiles<kLargeBlockSize, Formula, Finish>(where, 1, early, n, out, no_scratch,
                                                          first, rest...);
  }
}

template <class Formula, class Finish, class T, class... In>
void reduce(Cuda where, int64_t n, T* out, Accumulate<T>* scratch, const In*... in) {
  const int64_t parts = partial_sums(where, n);
  if (parts == 0) {
    launch_one_block<Formula, Finish>(where, false, n, out, in...);
    return;
  }
  launch_reduce_tiles<kSmallBlockSize, Formula, Finish>(where, parts, false, n, out, scratch,
                                                        in...);
  const Accumulate<T>* sums = scratch;
  launch_one_block<Identity, Finish>(where, true, parts, out, sums);
}

}  // namespace kernels
