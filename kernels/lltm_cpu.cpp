#include <type_traits>

#include "kernels/lltm.h"
#include "kernels/lltm_math.h"
#include "kernels/shared/block.h"

using namespace kernels;

namespace {

// A tile of the work: the rows whose gradients make up a row of sums, and the columns of a block.
struct Tile {
  int64_t sum, row, end, column, columns;
};

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

template <class F>
void for_tiles(Cpu where, int64_t batch, int64_t state, const F& f) {
  const int64_t across = (state + kBlock - 1) / kBlock;
  const auto range = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t sum = i / across, row = sum * kLltmRowsPerSum, column = i % across * kBlock;
      f(Tile{sum, row, smaller(row + kLltmRowsPerSum, batch), column,
             smaller(kBlock, state - column)});
    }
  };
  where.for_ranges(lltm_sums(batch) * across, range, 4);  // 4 tiles of 2048 elements: about 20 us
}

template <class T>
Block<T> load_columns(const T* from, int64_t n) {
  if constexpr (std::is_same_v<T, Half>) {
    if (n == kBlock) return load_block(from);
  }
  Block<T> block;
  for (int64_t i = 0; i < n; ++i) block.value[i] = widen(from[i]);
  return block;
}

template <class T>
void store_columns(T* to, const Block<T>& block, int64_t n) {
  if constexpr (std::is_same_v<T, Half>) {
    if (n == kBlock) return store_block(to, block);
  }
  for (int64_t i = 0; i < n; ++i) to[i] = narrow<T>(block.value[i]);
}

template <class T>
Block<T> load_columns(const LltmGradientView<T>& from, int64_t row, int64_t column, int64_t n) {
  const T* begin = from.data + row * from.row + column * from.column;
  if (from.data != nullptr && from.column == 1) return load_columns(begin, n);
  Block<T> block;
  for (int64_t i = 0; i < n; ++i) {
    block.value[i] = from.data == nullptr ? Accumulate<T>{0} : widen(begin[i * from.column]);
  }
  return block;
}

// Does nothing if `to` is nullptr.
template <class T>
void store_columns_at(T* to, int64_t offset, const Block<T>& block, int64_t n) {
  if (to != nullptr) store_columns(to + offset, block, n);
}

// The three gates of a row, or their gradients.
template <class T>
struct Gates {
  Block<T> gate[3];

  void add(const Gates& other, int64_t n) {
    for (int g = 0; g < 3; ++g) {
      for (int64_t i = 0; i < n; ++i) gate[g].value[i] += other.gate[g].value[i];
    }
  }
};

template <class T>
Gates<T> load_gates(const T* from, int64_t state, int64_t n) {
  return {
      {load_columns(from, n), load_columns(from + state, n), load_columns(from + 2 * state, n)}};
}

template <class T>
void store_gates_at(T* to, int64_t offset, int64_t state, const Gates<T>& gates, int64_t n) {
  for (int g = 0; g < 3; ++g) store_columns_at(to, offset + g * state, gates.gate[g], n);
}

template <class T>
void store_sums(Accumulate<T>* to, int64_t state, const Gates<T>& sum, int64_t n) {
  for (int g = 0; g < 3; ++g) {
    for (int64_t i = 0; i < n; ++i) to[g * state + i] = sum.gate[g].value[i];
  }
}

}  // namespace

template <class T>
void lltm(Cpu where, T* new_h, T* new_cell, const T* gates, const T* old_cell, int64_t batch,
          int64_t state) {
  for_tiles(where, batch, state, [=](const Tile& tile) {
    const int64_t n = tile.columns;
    for (int64_t row = tile.row; row < tile.end; ++row) {
      const int64_t offset = row * state + tile.column;
      const Gates<T> g = load_gates(gates + row * 3 * state + tile.column, state, n);
      const Block<T> cell = load_columns(old_cell + offset, n);
      Block<T> h, c;
      for (int64_t i = 0; i < n; ++i) {
        const auto result =
            lltm_element(g.gate[0].value[i], g.gate[1].value[i], g.gate[2].value[i], cell.value[i]);
        h.value[i] = result.first;
        c.value[i] = result.second;
      }
      store_columns(new_h + offset, h, n);
      store_columns(new_cell + offset, c, n);
    }
  });
}

template <class T>
void lltm_backward(Cpu where, T* d_gates, T* d_bias, T* d_cell, Accumulate<T>* sums,
                   LltmGradientView<T> grad_h, LltmGradientView<T> grad_cell, const T* gates,
                   const T* new_cell, int64_t batch, int64_t state) {
  for_tiles(where, batch, state, [=](const Tile& tile) {
    const int64_t n = tile.columns;
    Gates<T> sum = {};
    for (int64_t row = tile.row; row < tile.end; ++row) {
      const int64_t offset = row * state + tile.column;
      const int64_t gate_offset = row * 3 * state + tile.column;
      const Gates<T> g = load_gates(gates + gate_offset, state, n);
      const Block<T> gh = load_columns(grad_h, row, tile.column, n);
      const Block<T> gc = load_columns(grad_cell, row, tile.column, n);
      const Block<T> cell = load_columns(new_cell + offset, n);
      Gates<T> d;
      Block<T> d_old;
      for (int64_t i = 0; i < n; ++i) {
        const auto gradient =
            lltm_element_gradient(gh.value[i], gc.value[i], g.gate[0].value[i], g.gate[1].value[i],
                                  g.gate[2].value[i], cell.value[i]);
        for (int k = 0; k < 3; ++k) d.gate[k].value[i] = gradient.gate[k];
        d_old.value[i] = gradient.cell;
      }
      sum.add(d, n);
      store_gates_at(d_gates, gate_offset, state, d, n);
      store_columns_at(d_cell, offset, d_old, n);
    }
    if (sums != nullptr) {
      store_sums<T>(sums + tile.sum * 3 * state + tile.column, state, sum, n);
    } else {
      store_gates_at(d_bias, tile.column, state, sum, n);
    }
  });
  if (d_bias == nullptr || lltm_sums(batch) == 1) return;
  where.for_ranges(3 * state, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Accumulate<T> total{0};
      for (int64_t sum = 0; sum < lltm_sums(batch); ++sum) total += sums[sum * 3 * state + i];
      d_bias[i] = narrow<T>(total);
    }
  });
}

#define INSTANTIATE(T)                                                              \
  template void lltm(Cpu, T*, T*, const T*, const T*, int64_t, int64_t);            \
  template void lltm_backward(Cpu, T*, T*, T*, Accumulate<T>*, LltmGradientView<T>, \
                              LltmGradientView<T>, const T*, const T*, int64_t, int64_t);
FOR_FLOATING(INSTANTIATE)
