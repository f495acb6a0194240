// y[r][i] = Formula's result for x[r][i], which depends on all elements of the row x[r], on the
// current CUDA device; kernels/shared/rows.h says what a Formula is.
//
//   rowwise<Formula>(where, y, x, rows, width)
//
// A row of up to 512 elements has a warp, a longer one a block of 64 to 512 threads. Each thread
// keeps 16 elements of its row in registers, so that a row of up to 8192 elements is read once.
// What is left of a longer row is read twice: for its Row, then for the results.
#pragma once

#include "kernels/shared/elementwise.cuh"
#include "kernels/shared/rows.h"

namespace kernels {

constexpr int kKeptElements = 16;  // of a row, by each thread
constexpr int kRowsOfBlock = 4;    // if a row has a warp

// n adjacent elements: one, or as many as a vector has.
template <class T, int n>
struct Chunk {
  T value[n];
};

template <class T, int n>
__device__ Chunk<T, n> load_chunk(const T* from) {
  Chunk<T, n> chunk;
  if constexpr (n == 1) {
    chunk.value[0] = from[0];
  } else {
    const AlignedVector<T> vector = load_vector(from);
    memcpy(&chunk, &vector, sizeof(chunk));
  }
  return chunk;
}

template <class Formula, class Row, class T, int n>
__device__ Row add_chunk(Row row, const Chunk<T, n>& chunk) {
  Accumulate<T> values[n];
#pragma unroll
  for (int k = 0; k < n; ++k) values[k] = widen(chunk.value[k]);
  return Formula::add(row, values);
}

template <class T, int n, class Result>
__device__ void store_chunk(T* to, const Chunk<T, n>& chunk, const Result& result) {
  Accumulate<T> results[n];
#pragma unroll
  for (int k = 0; k < n; ++k) results[k] = result(widen(chunk.value[k]));
  if constexpr (n == 1) {
    to[0] = narrow<T>(results[0]);
  } else {
    store_results(to, 0, results);
  }
}

// The Row of the lane whose number differs in these bits.
template <class Row>
__device__ Row row_of_lane(Row row, int bits) {
  static_assert(sizeof(Row) % sizeof(int) == 0, "a Row has members of 4 or 8 bytes");
  int words[sizeof(Row) / sizeof(int)];
  memcpy(words, &row, sizeof(row));
#pragma unroll
  for (int& word : words) word = __shfl_xor_sync(0xffffffffu, word, bits);
  memcpy(&row, words, sizeof(row));
  return row;
}

// The Row of all elements: the threads of a row have one of some elements each. Every thread of the
// block must call it, and only once in a kernel.
template <int threads, class Formula, class Row>
__device__ Row row_of_all(Row row) {
#pragma unroll
  for (int bits = kWarpSize / 2; bits > 0; bits /= 2) {
    row = Formula::join(row, row_of_lane(row, bits));
  }
  if constexpr (threads > kWarpSize) {
    constexpr int warps = threads / kWarpSize;
    __shared__ Row of_warp[warps];
    if (threadIdx.x % kWarpSize == 0) of_warp[threadIdx.x / kWarpSize] = row;
    __syncthreads();
    row = of_warp[threadIdx.x % warps];
#pragma unroll
    for (int bits = warps / 2; bits > 0; bits /= 2) {
      row = Formula::join(row, row_of_lane(row, bits));
    }
  }
  return row;
}

// threads: of a row. n: the elements of a chunk.
template <int threads, int n, class Formula, class T>
__global__ void __launch_bounds__(threads > kWarpSize ? threads : kRowsOfBlock * kWarpSize)
    apply_to_rows(T* y, const T* x, int64_t rows, int64_t width) {
  constexpr int chunks = kKeptElements / n;
  constexpr int64_t step = threads * n;
  const int64_t r = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / threads;
  if (r >= rows) return;  // a whole warp
  const int64_t begin = threadIdx.x % threads * n;
  x += r * width;
  y += r * width;
  Chunk<T, n> kept[chunks];
#pragma unroll
  for (int c = 0; c < chunks; ++c) {
    if (begin + c * step < width) kept[c] = load_chunk<T, n>(x + begin + c * step);
  }
  auto row = Formula::template none<Accumulate<T>>();
#pragma unroll
  for (int c = 0; c < chunks; ++c) {
    if (begin + c * step < width) row = add_chunk<Formula>(row, kept[c]);
  }
  for (int64_t i = begin + chunks * step; i < width; i += step) {
    row = add_chunk<Formula>(row, load_chunk<T, n>(x + i));
  }
  row = row_of_all<threads, Formula>(row);
  const auto result = Formula::result(row, static_cast<Accumulate<T>>(width));
#pragma unroll
  for (int c = 0; c < chunks; ++c) {
    if (begin + c * step < width) store_chunk(y + begin + c * step, kept[c], result);
  }
  for (int64_t i = begin + chunks * step; i < width; i += step) {
    store_chunk(y + i, load_chunk<T, n>(x + i), result);
  }
}

template <int threads, class Formula, class T>
void launch_rows(Cuda where, T* y, const T* x, int64_t rows, int64_t width) {
  constexpr int rows_of_block = threads > kWarpSize ? 1 : kRowsOfBlock;
  const bool aligned = (address_bits(y) | address_bits(x)) % 16 == 0 && width % kVectorSize<T> == 0;
  const auto kernel = aligned ? apply_to_rows<threads, kVectorSize<T>, Formula, T>
                              : apply_to_rows<threads, 1, Formula, T>;
  const unsigned grid = blocks_for(rows, rows_of_block);
  kernel<<<grid, threads * rows_of_block, 0, stream_of(where)>>>(y, x, rows, width);
  check_launch(__PRETTY_FUNCTION__);
}

template <class Formula, class T>
void rowwise(Cuda where, T* y, const T* x, int64_t rows, int64_t width) {
  if (rows == 0 || width == 0) return;
  if (width <= kKeptElements * kWarpSize) {
    launch_rows<kWarpSize, Formula>(where, y, x, rows, width);
  } else if (width <= kKeptElements * 64) {
    launch_rows<64, Formula>(where, y, x, rows, width);
  } else if (width <= kKeptElements * 256) {
    launch_rows<256, Formula>(where, y, x, rows, width);
  } else {
    launch_rows<512, Formula>(where, y, x, rows, width);
  }
}

}  // namespace kernels
