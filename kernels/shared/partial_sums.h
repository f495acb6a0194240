// Into how many parts a reduction of n elements is cut, each part's sum being kept in memory of the
// caller: scratch for so many values of the type that the elements are accumulated in. 0 where the
// work is one part.
//
// The parts depend on n alone, neither on threads nor on the GPU: the same input gives the same
// bits on every one.
#pragma once

#include "kernels/shared/common.h"

// On the CPU: what is added up before sums are added in pairs. Longer chunks lose digits: with
// 16384, 2^24 times 0.1f is wrong by 2.4e-6, with 4096 by 0.6e-6, torch.sum by 0.5e-6.
constexpr int64_t kReductionChunk = 4096;

// On the GPU: what each of several blocks reads at a time, and how many there are at most. On an
// H200 2^28 floats' two_norm took 483 us with 16384 blocks, 491 with 2048, 501 with 1024, 488 with
// 65536; since their sums are added up by more threads, 472 with 16384.
constexpr int64_t kReductionTile = 4096;
constexpr int64_t kMaxReductionBlocks = 16384;

// One block adds up as many tiles as this sooner, where the host is the slower, than a second
// launch adds up several blocks' sums: calls one after another take 6.1 us with 16 tiles of
// float, 10.0 with two launches. Where the host does not take part, in a CUDA graph, it is 3.0
// and 2.4, for two_norm of doubles 6.6 and 3.0; with 32 tiles it is 4.2 and 2.4, 11.0 and 3.1.
constexpr int64_t kMaxTilesOfOneBlock = 16;

inline int64_t partial_sums(Cpu /*where*/, int64_t n) {
  return n <= kReductionChunk ? 0 : (n + kReductionChunk - 1) / kReductionChunk;
}

inline int64_t partial_sums(Cuda /*where*/, int64_t n) {
  const int64_t tiles = (n + kReductionTile - 1) / kReductionTile;
  if (tiles <= kMaxTilesOfOneBlock) return 0;
  return tiles < kMaxReductionBlocks ? tiles : kMaxReductionBlocks;
}

// The formula for a plain sum, and for the sum of partial sums.
struct Identity {
  template <class T>
  HOST_DEVICE T operator()(T x) const {
    return x;
  }
};
