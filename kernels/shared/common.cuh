// What every .cu file shares.
#pragma once

#include "kernels/shared/common.h"
#include "kernels/shared/launch_error.h"

constexpr int kWarpSize = 32;

// How many blocks cover n elements, or threads, of which each block takes so many.
inline unsigned blocks_for(int64_t n, int64_t per_block) {
  return static_cast<unsigned>((n + per_block - 1) / per_block);
}

inline cudaStream_t stream_of(Cuda where) { return static_cast<cudaStream_t>(where.stream); }

// Stands right behind every launch: throws what CUDA found wrong with it. A fault while the kernel
// runs shows later, at the next launch or the caller's next synchronisation, unless the process
// runs with CUDA_LAUNCH_BLOCKING=1. `launcher` says whose launch it was: __PRETTY_FUNCTION__ names
// the op's formula and the type as well.
inline void check_launch(const char* launcher) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  // A kernel that has failed takes the context with it: every later call gives its error as well.
  const bool is_fault = cudaStreamQuery(cudaStreamLegacy) == error;
  cudaGetLastError();  // forgets what the query itself may have found wrong, during a capture
  throw LaunchError(launcher, cudaGetErrorName(error), cudaGetErrorString(error), is_fault);
}
