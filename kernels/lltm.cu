#include "kernels/lltm.h"
#include "kernels/lltm_math.h"
#include "kernels/shared/elementwise.cuh"

using namespace kernels;

// A block has 32 threads along the columns and 8 along the rows. A thread has one vector of
// columns, or one column if vectors would not be aligned. On an H200, 4096 x 1024 floats take 32 us
// and their gradients 54 us. One column per thread would take 36 and 61 us, the memory accesses
// alone 23 and 39 us. In bfloat16 the times are 24 and 44 us, or 34 and 52 with one column.
constexpr int kColumnThreads = 32;
constexpr int kRowThreads = 8;

template <class T, bool vectors>
struct Columns {
  static constexpr int kCount = vectors ? kVectorSize<T> : 1;
  Accumulate<T> value[kCount];
};

template <class T, bool vectors>
__device__ Columns<T, vectors> load_columns(const T* from) {
  Columns<T, vectors> columns;
  if constexpr (vectors) {
    const AlignedVector<T> vector = load_vector(from);
#pragma unroll
    for (int k = 0; k < kVectorSize<T>; ++k) columns.value[k] = widen(vector.value[k]);
  } else {
    columns.value[0] = widen(*from);
  }
  return columns;
}

template <class T, bool vectors>
__device__ Columns<T, vectors> load_columns(const LltmGradientView<T>& from, int64_t row,
                                            int64_t column) {
  Columns<T, vectors> columns{};
  if (from.data == nullptr) return columns;
  const T* at = from.data + row * from.row + column * from.column;
  if (from.column == 1 && reinterpret_cast<uintptr_t>(at) % sizeof(uint4) == 0) {
    return load_columns<T, vectors>(at);
  }
#pragma unroll
  for (int k = 0; k < Columns<T, vectors>::kCount; ++k) {
    columns.value[k] = widen(at[k * from.column]);
  }
  return columns;
}

template <class T, bool vectors>
__device__ void store_columns(T* to, const Columns<T, vectors>& columns) {
  if constexpr (vectors) {
    store_results(to, 0, columns.value);
  } else {
    *to = narrow<T>(columns.value[0]);
  }
}

// The three gates, or their gradients, of some columns.
template <class T, bool vectors>
struct Gates {
  Columns<T, vectors> gate[3];
};

template <class T, bool vectors>
__device__ Gates<T, vectors> load_gates(const T* from, int64_t state) {
  Gates<T, vectors> gates;
#pragma unroll
  for (int g = 0; g < 3; ++g) gates.gate[g] = load_columns<T, vectors>(from + g * state);
  return gates;
}

template <class T, bool vectors>
__device__ Gates<T, vectors> operator+(Gates<T, vectors> a, const Gates<T, vectors>& b) {
#pragma unroll
  for (int g = 0; g < 3; ++g) {
#pragma unroll
    for (int k = 0; k < Columns<T, vectors>::kCount; ++k) a.gate[g].value[k] += b.gate[g].value[k];
  }
  return a;
}

// The part of the work that one thread does. Its block has `rows_per_block` rows; the thread has
// every kRowThreads-th of them, from `row` up to but not including `end`. `column` may be past the
// last.
struct Place {
  int64_t tile, row, end, column;
};

template <int rows_per_block, int columns_per_thread>
__device__ Place place_of_thread(int64_t batch, unsigned tiles_across) {
  const int64_t tile = blockIdx.x / tiles_across;
  const int64_t across = int64_t{blockIdx.x % tiles_across} * kColumnThreads + threadIdx.x;
  const int64_t begin = tile * rows_per_block;
  const int64_t end = begin + rows_per_block < batch ? begin + rows_per_block : batch;
  return {tile, begin + threadIdx.y, end, across * columns_per_thread};
}

template <class T, bool vectors>
__global__ void __launch_bounds__(kColumnThreads* kRowThreads)
    step(T* new_h, T* new_cell, const T* gates, const T* old_cell, int64_t batch, int64_t state,
         unsigned tiles_across) {
  using C = Columns<T, vectors>;
  const Place at = place_of_thread<kRowThreads, C::kCount>(batch, tiles_across);
  if (at.row >= at.end || at.column >= state) return;
  const int64_t offset = at.row * state + at.column;
  const Gates<T, vectors> g = load_gates<T, vectors>(gates + at.row * 3 * state + at.column, state);
  const C cell = load_columns<T, vectors>(old_cell + offset);
  C h, c;
#pragma unroll
  for (int k = 0; k < C::kCount; ++k) {
    const auto result =
        lltm_element(g.gate[0].value[k], g.gate[1].value[k], g.gate[2].value[k], cell.value[k]);
    h.value[k] = result.first;
    c.value[k] = result.second;
  }
  store_columns(new_h + offset, h);
  store_columns(new_cell + offset, c);
}

// If d_bias is needed, each tile of kLltmRowsPerSum rows writes its sum to a row of `sums`; a
// single tile writes to d_bias itself.
template <class T, bool vectors>
__global__ void __launch_bounds__(kColumnThreads* kRowThreads)
    step_backward(T* d_gates, T* d_bias, T* d_cell, Accumulate<T>* sums, LltmGradientView<T> grad_h,
                  LltmGradientView<T> grad_cell, const T* gates, const T* new_cell, int64_t batch,
                  int64_t state, unsigned tiles_across) {
  using C = Columns<T, vectors>;
  Place at = place_of_thread<kLltmRowsPerSum, C::kCount>(batch, tiles_across);
  Gates<T, vectors> sum{};
  if (at.column < state) {
    for (; at.row < at.end; at.row += kRowThreads) {
      const int64_t offset = at.row * state + at.column;
      const int64_t gate_offset = at.row * 3 * state + at.column;
      const Gates<T, vectors> g = load_gates<T, vectors>(gates + gate_offset, state);
      const C gh = load_columns<T, vectors>(grad_h, at.row, at.column);
      const C gc = load_columns<T, vectors>(grad_cell, at.row, at.column);
      const C cell = load_columns<T, vectors>(new_cell + offset);
      Gates<T, vectors> d;
      C dc;
#pragma unroll
      for (int k = 0; k < C::kCount; ++k) {
        const auto gradient =
            lltm_element_gradient(gh.value[k], gc.value[k], g.gate[0].value[k], g.gate[1].value[k],
                                  g.gate[2].value[k], cell.value[k]);
#pragma unroll
        for (int j = 0; j < 3; ++j) d.gate[j].value[k] = gradient.gate[j];
        dc.value[k] = gradient.cell;
      }
      sum = sum + d;
      if (d_cell != nullptr) store_columns(d_cell + offset, dc);
#pragma unroll
      for (int j = 0; j < 3; ++j) {
        if (d_gates != nullptr) store_columns(d_gates + gate_offset + j * state, d.gate[j]);
      }
    }
  }
  if (d_bias == nullptr) return;
  // Sums over the rows of the block, always in the same order.
  __shared__ Gates<T, vectors> shared[kRowThreads][kColumnThreads];
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || at.column >= state) return;
  for (int y = 1; y < kRowThreads; ++y) sum = sum + shared[y][threadIdx.x];
#pragma unroll
  for (int j = 0; j < 3; ++j) {
    const int64_t place = j * state + at.column;
    if (sums == nullptr) {
      store_columns(d_bias + place, sum.gate[j]);
    } else {
#pragma unroll
      for (int k = 0; k < C::kCount; ++k) {
        sums[at.tile * 3 * state + place + k] = sum.gate[j].value[k];
      }
    }
  }
}

// total[i] = the sum of sums[tile][i] over all tiles.
template <class T>
__global__ void __launch_bounds__(kColumnThreads* kRowThreads)
    sum_tiles(T* total, const Accumulate<T>* sums, int64_t tiles, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * kColumnThreads + threadIdx.x;
  Accumulate<T> sum{0};
  if (i < n) {
    for (int64_t tile = threadIdx.y; tile < tiles; tile += kRowThreads) sum += sums[tile * n + i];
  }
  __shared__ Accumulate<T> shared[kRowThreads][kColumnThreads];
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || i >= n) return;
  for (int y = 1; y < kRowThreads; ++y) sum += shared[y][threadIdx.x];
  total[i] = narrow<T>(sum);
}

namespace {

constexpr dim3 kBlockShape(kColumnThreads, kRowThreads);

template <class T, class... More>
bool vectors_fit(int64_t state, const T* first, const More*... more) {
  return state % kVectorSize<T> == 0 &&
         ((address_bits(first) | ... | address_bits(more)) % 16) == 0;
}

}  // namespace

template <class T>
void lltm(Cuda where, T* new_h, T* new_cell, const T* gates, const T* old_cell, int64_t batch,
          int64_t state) {
  if (batch == 0 || state == 0) return;
  const bool vectors = vectors_fit(state, gates, old_cell, new_h, new_cell);
  const int64_t across = blocks_for(state, kColumnThreads * (vectors ? kVectorSize<T> : 1));
  const int64_t blocks = blocks_for(batch, kRowThreads) * across;
  const auto kernel = vectors ? step<T, true> : step<T, false>;
  kernel<<<static_cast<unsigned>(blocks), kBlockShape, 0, stream_of(where)>>>(
      new_h, new_cell, gates, old_cell, batch, state, static_cast<unsigned>(across));
  check_launch(__PRETTY_FUNCTION__);
}

template <class T>
void lltm_backward(Cuda where, T* d_gates, T* d_bias, T* d_cell, Accumulate<T>* sums,
                   LltmGradientView<T> grad_h, LltmGradientView<T> grad_cell, const T* gates,
                   const T* new_cell, int64_t batch, int64_t state) {
  if (state == 0) return;
  const int64_t tiles = lltm_sums(batch);
  if (tiles > 0) {
    const bool vectors = vectors_fit(state, gates, new_cell, d_gates, d_bias, d_cell);
    const int64_t across = blocks_for(state, kColumnThreads * (vectors ? kVectorSize<T> : 1));
    const auto kernel = vectors ? step_backward<T, true> : step_backward<T, false>;
    kernel<<<static_cast<unsigned>(tiles * across), kBlockShape, 0, stream_of(where)>>>(
        d_gates, d_bias, d_cell, tiles > 1 ? sums : nullptr, grad_h, grad_cell, gates, new_cell,
        batch, state, static_cast<unsigned>(across));
    check_launch(__PRETTY_FUNCTION__);
  }
  if (d_bias != nullptr && tiles != 1) {
    const int64_t n = 3 * state;
    const unsigned blocks = blocks_for(n, kColumnThreads);
    sum_tiles<<<blocks, kBlockShape, 0, stream_of(where)>>>(d_bias, sums, tiles, n);
    check_launch(__PRETTY_FUNCTION__);
  }
}

#define INSTANTIATE(T)                                                               \
  template void lltm(Cuda, T*, T*, const T*, const T*, int64_t, int64_t);            \
  template void lltm_backward(Cuda, T*, T*, T*, Accumulate<T>*, LltmGradientView<T>, \
                              LltmGradientView<T>, const T*, const T*, int64_t, int64_t);
FOR_FLOATING(INSTANTIATE)
