// Every op's .cu file includes this: sizes of launches, and the check after each.
#pragma once

#include "kernels/shared/common.h"
#include "kernels/shared/launch_error.h"

namespace kernels {

constexpr int kWarpSize = 32;

// The number of thread blocks for n elements (or threads), per_block of them in each.
inline unsigned blocks_for(int64_t n, int64_t per_block) {
  return static_cast<unsigned>((n + per_block - 1) / per_block);
}

// The stream for a launch: kernel<<<blocks, threads, 0, stream_of(where)>>>(...). Cuda holds it as
// a void*, so that headers of ops, which bindings include too, need no CUDA header.
inline cudaStream_t stream_of(Cuda where) { return static_cast<cudaStream_t>(where.stream); }

// Throws LaunchError if the kernel could not be launched; call it right after every launch. A fault
// inside the kernel is reported later, by the next launch or the caller's next synchronisation,
// unless the process runs with CUDA_LAUNCH_BLOCKING=1. `launcher` is the caller's
// __PRETTY_FUNCTION__, which names the op's formula and type too.
inline void check_launch(const char* launcher) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  // A fault inside a kernel corrupts the context: every later call returns the same error.
  const bool is_fault = cudaStreamQuery(cudaStreamLegacy) == error;
  cudaGetLastError();  // clears the error of the query itself, which fails during a capture
  throw LaunchError(launcher, cudaGetErrorName(error), cudaGetErrorString(error), is_fault);
}

}  // namespace kernels
