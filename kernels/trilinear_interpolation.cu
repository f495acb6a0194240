#include <type_traits>

#include "kernels/shared/elementwise.cuh"
#include "kernels/trilinear_interpolation.h"
#include "kernels/trilinear_interpolation_math.h"

using namespace kernels;

// Every kernel moves 16-byte vectors (AlignedVector<T>) if f and the arrays' addresses allow it,
// otherwise single elements (Single<T>). A Pack is either of them; `packs` is the number of packs
// in a row of f elements.
//
// On an H200, float32 with n = 2^20 and f = 64 takes 554 us forward (4.4 TB/s), 620 us for the
// gradient of feats and 568 us for that of points. Loads that bypass the L1 cache (no_allocate)
// take 583 us forward, and 1147 instead of 704 at n = 2^24 and f = 4, where each cache line is read
// 8 times.
//
// The gradient of feats moves 2.40 GB, each byte once (ncu: 0.28 read, 2.12 written), at 3.9 TB/s,
// 80% of the memory's peak. The writes alone would take 500 us; the reads between them cost the
// rest. 40 variants took from 624 to 720 us: streaming, write-through and bulk stores
// (cp.async.bulk), 64 to 1024 threads, grid-stride loops, results in memory order, grad prefetched
// into the L2 cache. The gradient of points reaches 93% of the peak.

template <class T>
struct Single {
  T value[1];
};

template <class T>
__device__ AlignedVector<T> load_pack(const AlignedVector<T>* from) {
  return load_vector(from->value);
}

template <class T>
__device__ Single<T> load_pack(const Single<T>* from) {
  return *from;
}

template <class T>
__device__ void store_pack(AlignedVector<T>* to, const AlignedVector<T>& vector) {
  store_vector(to->value, vector);
}

template <class T>
__device__ void store_pack(Single<T>* to, const Single<T>& single) {
  *to = single;
}

// The index of this thread in the grid.
__device__ uint64_t thread_index() { return uint64_t{blockIdx.x} * kThreadsPerBlock + threadIdx.x; }

// Each thread computes one pack of out.
template <class Pack, class T>
__global__ void __launch_bounds__(kThreadsPerBlock)
    interpolate(Pack* __restrict__ out, const Pack* __restrict__ feats,
                const T* __restrict__ points, uint64_t all_packs, uint64_t packs) {
  constexpr int size = sizeof(Pack) / sizeof(T);
  const uint64_t i = thread_index();
  if (i >= all_packs) return;
  const uint64_t point = i / packs;
  const Pack* first = feats + point * (kCorners - 1) * packs + i;
  Pack corners[kCorners];
#pragma unroll
  for (int k = 0; k < kCorners; ++k) corners[k] = load_pack(first + k * packs);
  const auto weights = corner_weights(position_in_cell(points + point * 3));
  Pack result;
#pragma unroll
  for (int element = 0; element < size; ++element) {
    Accumulate<T> sum = 0;
#pragma unroll
    for (int k = 0; k < kCorners; ++k) sum += weights.corner[k] * widen(corners[k].value[element]);
    result.value[element] = narrow<T>(sum);
  }
  store_pack(out + i, result);
}

// Each thread reads one pack of grad. Rows of more than 64 bytes reach 3.9 TB/s on an H200.
template <class Pack, class T>
__global__ void __launch_bounds__(kThreadsPerBlock)
    feats_backward(Pack* __restrict__ dfeats, const Pack* __restrict__ grad,
                   const T* __restrict__ points, uint64_t all_packs, uint64_t packs) {
  constexpr int size = sizeof(Pack) / sizeof(T);
  const uint64_t i = thread_index();
  if (i >= all_packs) return;
  const uint64_t point = i / packs;
  const Pack g = load_pack(grad + i);
  const auto weights = corner_weights(position_in_cell(points + point * 3));
  Pack* first = dfeats + point * (kCorners - 1) * packs + i;
#pragma unroll
  for (int k = 0; k < kCorners; ++k) {
    Pack result;
#pragma unroll
    for (int element = 0; element < size; ++element) {
      result.value[element] = narrow<T>(weights.corner[k] * widen(g.value[element]));
    }
    store_pack(first + k * packs, result);
  }
}

// Each thread writes one pack of dfeats, in memory order; grad is read 8 times, but from the cache.
// If the 8 results of a thread of feats_backward lie less than a memory sector (32 bytes) apart,
// this is 1.1 to 3.4 times as fast (float32 with F = 1: 215 us instead of 757; F = 4: 176 instead
// of 545); with long rows it is 0.9 times as fast. `Grad` is Pack if rows of grad consist of packs,
// else T.
template <class Grad, class Pack, class T>
__global__ void __launch_bounds__(kThreadsPerBlock)
    feats_backward_of_short_rows(Pack* __restrict__ dfeats, const Grad* __restrict__ grad,
                                 const T* __restrict__ points, uint64_t all_packs, uint64_t f) {
  constexpr int size = sizeof(Pack) / sizeof(T);
  const uint64_t i = thread_index();
  if (i >= all_packs) return;
  Pack result;
  if constexpr (std::is_same_v<Grad, Pack>) {
    const uint64_t packs = f / size, line = i / packs, point = line / kCorners;
    const Pack g = load_pack(grad + point * packs + i % packs);
    const auto weight = corner_weight(position_in_cell(points + point * 3), line % kCorners);
#pragma unroll
    for (int element = 0; element < size; ++element) {
      result.value[element] = narrow<T>(weight * widen(g.value[element]));
    }
  } else {
    const uint64_t line = i * size / f, point = line / kCorners;  // 8 lines make complete packs
    unsigned corner = line % kCorners;
    uint64_t column = i * size % f;
    const auto at = position_in_cell(points + point * 3);
#pragma unroll
    for (int element = 0; element < size; ++element) {
      result.value[element] =
          narrow<T>(corner_weight(at, corner) * widen(grad[point * f + column]));
      if (++column == f) {
        column = 0;
        ++corner;
      }
    }
  }
  store_pack(dfeats + i, result);
}

// The sum over each aligned group of `size` threads of a warp, valid in all of them; `size` is a
// power of 2. The order of additions depends on size alone. All threads of the warp must call it.
template <class A>
__device__ Position<A> sum_over_group(Position<A> sum, int size) {
  for (int distance = size / 2; distance > 0; distance /= 2) {
    sum.u += __shfl_xor_sync(0xffffffffu, sum.u, distance);
    sum.v += __shfl_xor_sync(0xffffffffu, sum.v, distance);
    sum.w += __shfl_xor_sync(0xffffffffu, sum.w, distance);
  }
  return sum;
}

// The sum over the block, valid in its first warp. All threads of the block must call it, and only
// once in a kernel.
template <class A>
__device__ Position<A> sum_over_block(Position<A> sum) {
  constexpr int warps = kThreadsPerBlock / kWarpSize;
  __shared__ Position<A> sums[warps];
  sum = sum_over_group(sum, kWarpSize);
  if (threadIdx.x % kWarpSize == 0) sums[threadIdx.x / kWarpSize] = sum;
  __syncthreads();
  return sum_over_group(sums[threadIdx.x % warps], warps);
}

// Each point has `threads` threads of a block: a power of 2 up to the warp size, or
// all of them.
template <class Pack, class T>
__global__ void __launch_bounds__(kThreadsPerBlock)
    points_backward(T* __restrict__ dpoints, const Pack* __restrict__ grad,
                    const Pack* __restrict__ feats, const T* __restrict__ points, uint64_t n,
                    uint64_t packs, unsigned threads) {
  using A = Accumulate<T>;
  constexpr int size = sizeof(Pack) / sizeof(T);
  const uint64_t point = thread_index() / threads;
  const unsigned member = threadIdx.x % threads;
  Position<A> sum{};
  if (point < n) {
    const auto at = position_in_cell(points + point * 3);
    for (uint64_t i = member; i < packs; i += threads) {
      const Pack g = load_pack(grad + point * packs + i);
      Pack corners[kCorners];
#pragma unroll
      for (int k = 0; k < kCorners; ++k) {
        corners[k] = load_pack(feats + (point * kCorners + k) * packs + i);
      }
#pragma unroll
      for (int element = 0; element < size; ++element) {
        A values[kCorners];
#pragma unroll
        for (int k = 0; k < kCorners; ++k) values[k] = widen(corners[k].value[element]);
        const A factor = widen(g.value[element]);
        const Position<A> slope = derivative(at, values);
        sum.u += factor * slope.u;
        sum.v += factor * slope.v;
        sum.w += factor * slope.w;
      }
    }
  }
  if (threads > kWarpSize) {
    sum = sum_over_block(sum);
  } else {
    sum = sum_over_group(sum, threads);
  }
  if (member == 0 && point < n) store_gradient(dpoints + point * 3, sum);
}

// Returns whether rows of f elements, in arrays at these addresses, consist of aligned vectors.
template <class T>
bool in_vectors(int64_t f, const T* first, const T* second) {
  return f % kVectorSize<T> == 0 && (address_bits(first) | address_bits(second)) % 16 == 0;
}

template <class Pack, class T>
void launch_interpolate(Cuda where, T* out, const T* feats, const T* points, int64_t n, int64_t f) {
  const uint64_t packs = f * sizeof(T) / sizeof(Pack);
  interpolate<<<blocks_for(n * packs, kThreadsPerBlock), kThreadsPerBlock, 0, stream_of(where)>>>(
      reinterpret_cast<Pack*>(out), reinterpret_cast<const Pack*>(feats), points, n * packs, packs);
  check_launch(__PRETTY_FUNCTION__);
}

template <class T>
void trilinear_interpolation(Cuda where, T* out, const T* feats, const T* points, int64_t n,
                             int64_t f) {
  if (n == 0 || f == 0) return;
  const auto launch = in_vectors(f, out, feats) ? launch_interpolate<AlignedVector<T>, T>
                                                : launch_interpolate<Single<T>, T>;
  launch(where, out, feats, points, n, f);
}

template <class Pack, class T>
void launch_feats_backward(Cuda where, T* dfeats, const T* grad, const T* points, int64_t n,
                           int64_t f) {
  const uint64_t packs = f * sizeof(T) / sizeof(Pack);
  feats_backward<<<blocks_for(n * packs, kThreadsPerBlock), kThreadsPerBlock, 0,
                   stream_of(where)>>>(reinterpret_cast<Pack*>(dfeats),
                                       reinterpret_cast<const Pack*>(grad), points, n * packs,
                                       packs);
  check_launch(__PRETTY_FUNCTION__);
}

template <class Grad, class Pack, class T>
void launch_feats_backward_of_short_rows(Cuda where, T* dfeats, const T* grad, const T* points,
                                         int64_t n, int64_t f) {
  const uint64_t packs = n * kCorners * f * sizeof(T) / sizeof(Pack);
  feats_backward_of_short_rows<<<blocks_for(packs, kThreadsPerBlock), kThreadsPerBlock, 0,
                                 stream_of(where)>>>(reinterpret_cast<Pack*>(dfeats),
                                                     reinterpret_cast<const Grad*>(grad), points,
                                                     packs, static_cast<uint64_t>(f));
  check_launch(__PRETTY_FUNCTION__);
}

template <class T>
void trilinear_interpolation_feats_backward(Cuda where, T* dfeats, const T* grad, const T* points,
                                            int64_t n, int64_t f) {
  if (n == 0 || f == 0) return;
  const bool vectors = in_vectors(f, dfeats, grad);
  const auto launch =
      vectors && f * sizeof(T) > 64 ? launch_feats_backward<AlignedVector<T>, T>
      : vectors ? launch_feats_backward_of_short_rows<AlignedVector<T>, AlignedVector<T>, T>
      : address_bits(dfeats) % 16 == 0 ? launch_feats_backward_of_short_rows<T, AlignedVector<T>, T>
                                       : launch_feats_backward_of_short_rows<T, Single<T>, T>;
  launch(where, dfeats, grad, points, n, f);
}

// The number of threads that share a row: one for each pack, rounded up to a power of 2, at most a
// warp; or a complete block if there is a pack for each of its threads.
unsigned threads_per_row(uint64_t packs) {
  if (packs >= kThreadsPerBlock) return kThreadsPerBlock;
  unsigned threads = 1;
  while (threads < packs && threads < kWarpSize) threads *= 2;
  return threads;
}

template <class Pack, class T>
void launch_points_backward(Cuda where, T* dpoints, const T* grad, const T* feats, const T* points,
                            int64_t n, int64_t f) {
  const uint64_t packs = f * sizeof(T) / sizeof(Pack);
  const unsigned threads = threads_per_row(packs);
  points_backward<<<blocks_for(n * threads, kThreadsPerBlock), kThreadsPerBlock, 0,
                    stream_of(where)>>>(dpoints, reinterpret_cast<const Pack*>(grad),
                                        reinterpret_cast<const Pack*>(feats), points,
                                        static_cast<uint64_t>(n), packs, threads);
  check_launch(__PRETTY_FUNCTION__);
}

template <class T>
void trilinear_interpolation_points_backward(Cuda where, T* dpoints, const T* grad, const T* feats,
                                             const T* points, int64_t n, int64_t f) {
  if (n == 0) return;
  const auto launch = in_vectors(f, grad, feats) ? launch_points_backward<AlignedVector<T>, T>
                                                 : launch_points_backward<Single<T>, T>;
  launch(where, dpoints, grad, feats, points, n, f);
}

#define INSTANTIATE(T)                                                                          \
  template void trilinear_interpolation(Cuda, T*, const T*, const T*, int64_t, int64_t);        \
  template void trilinear_interpolation_feats_backward(Cuda, T*, const T*, const T*, int64_t,   \
                                                       int64_t);                                \
  template void trilinear_interpolation_points_backward(Cuda, T*, const T*, const T*, const T*, \
                                                        int64_t, int64_t);
FOR_FLOATING(INSTANTIATE)
