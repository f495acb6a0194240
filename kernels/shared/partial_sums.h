// How a reduction of n elements is divided into parts. Each part's sum is stored in scratch memory
// that the caller provides: partial_sums(where, n) values of type Accumulate<T>, or none if there
// is one part only.
//
// The parts depend on n alone, not on the number of threads or the GPU, so the same input gives the
// same bits everywhere.
#pragma once

#include "kernels/shared/common.h"

namespace kernels {

// On the CPU: the elements of a part. Longer chunks lose precision: the sum of 2^24 values of
// 0.1f has a relative error of 2.4e-6 with 16384, 0.6e-6 with 4096, and 0.5e-6 in torch.sum.
constexpr int64_t kReductionChunk = 4096;

// On the GPU: the elements that a thread block reads at a time, and the largest number of blocks.
// two_norm of 2^28 floats took 483 us on an H200 with 16384 blocks, 491 with 2048, 501 with 1024
// and 488 with 65536. With more threads to add up the blocks' sums, 16384 blocks take 472 us.
constexpr int64_t kReductionTile = 4096;
constexpr int64_t kMaxReductionBlocks = 16384;

// Up to this many tiles, one block sums them all. If the host limits the rate of calls, that is
// faster than a second launch to add up the blocks' sums: a call with 16 tiles of float takes 6.1
// us with one launch and 10.0 with two. In a CUDA graph, which the host does not limit, 16 tiles
// take 3.0 and 2.4 us (two_norm of doubles: 6.6 and 3.0), 32 tiles 4.2 and 2.4 us (11.0 and 3.1).
constexpr int64_t kMaxTilesOfOneBlock = 16;

inline int64_t partial_sums(Cpu /*where*/, int64_t n) {
  return n <= kReductionChunk ? 0 : (n + kReductionChunk - 1) / kReductionChunk;
}

inline int64_t partial_sums(Cuda /*where*/, int64_t n) {
  const int64_t tiles = (n + kReductionTile - 1) / kReductionTile;
  if (tiles <= kMaxTilesOfOneBlock) return 0;
  return tiles < kMaxReductionBlocks ? tiles : kMaxReductionBlocks;
}

// The formula of a plain sum.
struct Identity {
  template <class T>
  HOST_DEVICE T operator()(T x) const {
    return x;
  }
};

}  // namespace kernels
