// What every .cu file shares.
#pragma once

#include <stdio.h>

#include <exception>

#include "kernels/common.h"

// How many blocks cover n elements, or threads, of which each block takes so many.
inline unsigned blocks_for(int64_t n, int64_t per_block) {
  return static_cast<unsigned>((n + per_block - 1) / per_block);
}

inline cudaStream_t stream_of(Cuda where) { return static_cast<cudaStream_t>(where.stream); }

// Not std::runtime_error: <stdexcept> would add 0.5 s to the compilation of every .cu file.
class LaunchError : public std::exception {
 public:
  LaunchError(const char* launcher, cudaError_t error) {
    snprintf(message_, sizeof(message_), "CUDA could not launch the kernel of %s: %s: %s", launcher,
             cudaGetErrorName(error), cudaGetErrorString(error));
  }
  const char* what() const noexcept override { return message_; }

 private:
  char message_[1024];
};

// Stands right behind every launch: throws what CUDA found wrong with it (a fault while the kernel
// runs shows later, at the caller's next synchronisation). `launcher` says whose launch it was:
// __PRETTY_FUNCTION__ names the op's formula and the type as well.
inline void check_launch(const char* launcher) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) throw LaunchError(launcher, error);
}
