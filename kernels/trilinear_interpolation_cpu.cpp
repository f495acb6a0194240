// Long rows are processed in SIMD vectors, and short ones column by column; short rows of 16-bit
// types are converted to floats in a buffer. The tiles depend on n and f alone, so that no result
// depends on the number of threads.
#include <algorithm>
#include <type_traits>

#include "kernels/shared/block.h"
#include "kernels/shared/simd.h"
#include "kernels/trilinear_interpolation.h"
#include "kernels/trilinear_interpolation_math.h"

using namespace kernels;

namespace {

// Elements of (n, f) in a tile: 8 times as many floats fill half of a 32 KiB L1 cache.
constexpr int64_t kTile = 512;

// The least number of tiles for a thread.
constexpr int64_t kGrain = 8;

// A part of (n, f): several complete rows, or some columns of one row.
struct Tile {
  int64_t row, rows, column, columns;

  // The offset of its first element in an array (n, lines, f).
  int64_t in(int lines, int64_t f) const { return row * lines * f + column; }
};

class Tiles {
 public:
  Tiles(int64_t n, int64_t f) : n_(n), f_(f) {}

  int64_t down() const { return divide_up(n_, rows_); }
  int64_t across() const { return divide_up(f_, columns_); }

  Tile at(int64_t i, int64_t j) const {
    const int64_t row = i * rows_, column = j * columns_;
    return {row, std::min(rows_, n_ - row), column, std::min(columns_, f_ - column)};
  }

 private:
  static int64_t divide_up(int64_t x, int64_t by) { return (x + by - 1) / by; }

  int64_t n_, f_;
  int64_t columns_ = std::clamp<int64_t>(f_, 1, kTile);
  int64_t rows_ = kTile / columns_;
};

template <class Body>
void for_tiles(Cpu where, int64_t n, int64_t f, const Body& body) {
  const Tiles tiles(n, f);
  const int64_t across = tiles.across();
  where.for_ranges(
      tiles.down() * across,
      [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) body(tiles.at(i / across, i % across));
      },
      kGrain);
}

template <class T>
constexpr bool kIsBuffered = !std::is_same_v<T, Accumulate<T>>;

template <class T, int lines>
constexpr int64_t kBufferSize = kIsBuffered<T> ? kTile * lines : 1;

template <class T>
void widen_array(Accumulate<T>* to, const T* from, int64_t size) {
  int64_t i = 0;
  if constexpr (std::is_same_v<T, Half>) {
    for (; i + kBlock <= size; i += kBlock) {
      std::copy_n(load_block(from + i).value, kBlock, to + i);
    }
  }
  for (; i < size; ++i) to[i] = widen(from[i]);
}

template <class T>
void narrow_array(T* to, const Accumulate<T>* from, int64_t size) {
  int64_t i = 0;
  if constexpr (std::is_same_v<T, Half>) {
    Block<T> block;
    for (; i + kBlock <= size; i += kBlock) {
      std::copy_n(from + i, kBlock, block.value);
      store_block(to + i, block);
    }
  }
  for (; i < size; ++i) to[i] = narrow<T>(from[i]);
}

// A tile of an array (n, lines, f) as input; its lines are `stride` elements apart.
template <class T, int lines>
class Input {
 public:
  Input(const T* array, const Tile& tile, int64_t f) {
    const T* from = array + tile.in(lines, f);
    if constexpr (!kIsBuffered<T>) {
      begin = from;
      stride = f;
    } else {
      begin = buffer_;
      stride = tile.columns;
      if (stride == f) {
        widen_array(buffer_, from, tile.rows * lines * f);
      } else {
        for (int i = 0; i < lines; ++i) widen_array(buffer_ + i * stride, from + i * f, stride);
      }
    }
  }

  const Accumulate<T>* begin;
  int64_t stride;

 private:
  Accumulate<T> buffer_[kBufferSize<T, lines>];
};

// A tile of an array (n, lines, f) as output; write() must be called at the end.
template <class T, int lines>
class Output {
 public:
  Output(T* array, const Tile& tile, int64_t f)
      : tile_(tile), f_(f), to_(array + tile.in(lines, f)) {
    if constexpr (kIsBuffered<T>) {
      begin = buffer_;
    } else {
      begin = to_;
    }
  }

  void write() const {
    if constexpr (kIsBuffered<T>) {
      if (tile_.columns == f_) {
        narrow_array(to_, buffer_, tile_.rows * lines * f_);
      } else {
        for (int i = 0; i < lines; ++i) {
          narrow_array(to_ + i * f_, buffer_ + i * tile_.columns, tile_.columns);
        }
      }
    }
  }

  Accumulate<T>* begin;

 private:
  Tile tile_;
  int64_t f_;
  T* to_;
  Accumulate<T> buffer_[kBufferSize<T, lines>];
};

template <class T>
void weights_of_rows(Weights<Accumulate<T>>* weights, const T* points, const Tile& tile) {
  for (int64_t row = 0; row < tile.rows; ++row) {
    weights[row] = corner_weights(position_in_cell(points + (tile.row + row) * 3));
  }
}

// Rows of at least this many columns are processed one by one, with as many lanes in their sums.
constexpr int kLongRow = 16;

bool has_long_rows(const Tile& tile) { return tile.columns >= kLongRow; }

// Calls vector(column) for each SIMD vector of a long row, starting at `column`. The last vector
// may overlap the previous one.
template <class T, class Each>
void for_vectors(int64_t column, int64_t columns, const Each& vector) {
  static_assert(kSimdLanes<T> <= kLongRow);
  for (; column < columns; column += kSimdLanes<T>) {
    vector(std::min(column, columns - kSimdLanes<T>));
  }
}

// One vector of each corner at a time does not keep the memory busy: floats with F = 256 take 1.3
// times as long.
constexpr int kAdjacentVectors = 4;

template <class T, int vectors>
void interpolate_vectors(T* out, const T* corners, int64_t f,
                         const Weights<Accumulate<T>>& weight) {
  Simd<T> sums[vectors] = {};
  for (int k = 0; k < kCorners; ++k) {
    for (int i = 0; i < vectors; ++i) {
      sums[i] += weight.corner[k] * load_simd(corners + k * f + i * kSimdLanes<T>);
    }
  }
  for (int i = 0; i < vectors; ++i) store_simd(out + i * kSimdLanes<T>, sums[i]);
}

// Here out and grad point to the tile's first element in an array (n, f), feats and dfeats in
// (n, 8, f).
template <class T>
void interpolate_rows(const Tile& tile, T* out, const T* feats, int64_t f,
                      const Weights<Accumulate<T>>* weights) {
  for (int64_t row = 0; row < tile.rows; ++row) {
    const Weights<Accumulate<T>> weight = weights[row];
    T* to = out + row * f;
    const T* corners = feats + row * kCorners * f;
    constexpr int64_t kStep = kAdjacentVectors * kSimdLanes<T>;
    int64_t column = 0;
    for (; column + kStep <= tile.columns; column += kStep) {
      interpolate_vectors<T, kAdjacentVectors>(to + column, corners + column, f, weight);
    }
    for_vectors<T>(column, tile.columns, [=](int64_t column) {
      interpolate_vectors<T, 1>(to + column, corners + column, f, weight);
    });
  }
}

template <class T>
void distribute_rows(const Tile& tile, T* dfeats, const T* grad, int64_t f,
                     const Weights<Accumulate<T>>* weights) {
  for (int64_t row = 0; row < tile.rows; ++row) {
    const Weights<Accumulate<T>> weight = weights[row];
    for_vectors<T>(0, tile.columns, [=](int64_t column) {
      T* corners = dfeats + row * kCorners * f + column;
      const Simd<T> g = load_simd(grad + row * f + column);
      for (int k = 0; k < kCorners; ++k) store_simd(corners + k * f, weight.corner[k] * g);
    });
  }
}

// A loop over a short row costs more than its work. These functions loop over the rows of a column,
// in buffers.

template <class Element>
void for_elements(const Tile& tile, const Element& element) {
  for (int64_t column = 0; column < tile.columns; ++column) {
    for (int64_t row = 0; row < tile.rows; ++row) element(row, column);
  }
}

template <class A>
void interpolate_columns(const Tile& tile, A* __restrict out, const A* feats, int64_t stride,
                         const Weights<A>* weights) {
  for_elements(tile, [=](int64_t row, int64_t column) {
    const A* corners = feats + row * kCorners * stride + column;
    A sum = 0;
    for (int k = 0; k < kCorners; ++k) sum += weights[row].corner[k] * corners[k * stride];
    out[row * stride + column] = sum;
  });
}

template <class A>
void distribute_columns(const Tile& tile, A* __restrict dfeats, const A* grad, int64_t stride,
                        const Weights<A>* weights) {
  for_elements(tile, [=](int64_t row, int64_t column) {
    A* corners = dfeats + row * kCorners * stride + column;
    const A g = grad[row * stride + column];
    for (int k = 0; k < kCorners; ++k) corners[k * stride] = weights[row].corner[k] * g;
  });
}

// The derivative of grad times the value with respect to the position.
template <class A, class Value>
Position<Value> scaled_derivative(const Value& grad, const Value (&values)[kCorners],
                                  const Position<A>& at) {
  const Position<Value> slope = derivative(at, values);
  return {grad * slope.u, grad * slope.v, grad * slope.w};
}

constexpr int kCacheLine = 64;
constexpr int kMaxPrefetchedBytes = 16384;  // half of a small L1 cache

// The sum over a row's columns, in kLongRow lanes, so that it does not depend on the SIMD width.
// The next row's corners are prefetched if they fit into the cache: without that, rows of up to 512
// floats take 1.1 to 1.3 times as long, and bfloat16 1.1 times. Prefetching would slow down longer
// rows of floats by as much.
template <class T>
Position<Accumulate<T>> derivative_of_row(const T* grad, const T* feats, int64_t f,
                                          const Position<Accumulate<T>>& at, int64_t columns) {
  const int64_t end = columns - columns % kLongRow;
  const bool prefetches = kCorners * f * sizeof(T) <= kMaxPrefetchedBytes;
  Position<Simd<T>> sums[kLongRow / kSimdLanes<T>];
  for (int i = 0; i < kLongRow / kSimdLanes<T>; ++i) {
    const bool begins_line = prefetches && i * kSimdLanes<T> * sizeof(T) % kCacheLine == 0;
    Position<Simd<T>> sum{};  // in registers
    for (int64_t column = i * kSimdLanes<T>; column < end; column += kLongRow) {
      Simd<T> values[kCorners];
      for (int k = 0; k < kCorners; ++k) {
        const T* corner = feats + k * f + column;
        if (begins_line) __builtin_prefetch(corner + kCorners * f);
        values[k] = load_simd(corner);
      }
      add(sum, scaled_derivative(load_simd(grad + column), values, at));
    }
    sums[i] = sum;
  }
  Position<Accumulate<T>> lanes[kLongRow];
  for (int lane = 0; lane < kLongRow; ++lane) {
    const Position<Simd<T>>& sum = sums[lane / kSimdLanes<T>];
    lanes[lane] = {sum.u[lane % kSimdLanes<T>], sum.v[lane % kSimdLanes<T>],
                   sum.w[lane % kSimdLanes<T>]};
  }
  for (int lane = 0; end + lane < columns; ++lane) {
    const int64_t column = end + lane;
    Accumulate<T> values[kCorners];
    for (int k = 0; k < kCorners; ++k) values[k] = widen(feats[k * f + column]);
    add(lanes[lane], scaled_derivative(widen(grad[column]), values, at));
  }
  Position<Accumulate<T>> sum{};
  for (const Position<Accumulate<T>>& lane : lanes) add(sum, lane);
  return sum;
}

template <class A>
void add_derivatives_of_columns(const Tile& tile, Position<A>* __restrict sums, const A* grad,
                                const A* feats, int64_t stride, const Position<A>* at) {
  for_elements(tile, [=](int64_t row, int64_t column) {
    const A* corners = feats + row * kCorners * stride + column;
    A values[kCorners];
    for (int k = 0; k < kCorners; ++k) values[k] = corners[k * stride];
    add(sums[row], scaled_derivative(grad[row * stride + column], values, at[row]));
  });
}

}  // namespace

template <class T>
void trilinear_interpolation(Cpu where, T* out, const T* feats, const T* points, int64_t n,
                             int64_t f) {
  for_tiles(where, n, f, [=](const Tile& tile) {
    Weights<Accumulate<T>> weights[kTile];
    weights_of_rows(weights, points, tile);
    if (has_long_rows(tile)) {
      interpolate_rows(tile, out + tile.in(1, f), feats + tile.in(kCorners, f), f, weights);
    } else {
      const Input<T, kCorners> corners(feats, tile, f);
      Output<T, 1> results(out, tile, f);
      interpolate_columns(tile, results.begin, corners.begin, corners.stride, weights);
      results.write();
    }
  });
}

template <class T>
void trilinear_interpolation_feats_backward(Cpu where, T* dfeats, const T* grad, const T* points,
                                            int64_t n, int64_t f) {
  for_tiles(where, n, f, [=](const Tile& tile) {
    Weights<Accumulate<T>> weights[kTile];
    weights_of_rows(weights, points, tile);
    if (has_long_rows(tile)) {
      distribute_rows(tile, dfeats + tile.in(kCorners, f), grad + tile.in(1, f), f, weights);
    } else {
      const Input<T, 1> grads(grad, tile, f);
      Output<T, kCorners> results(dfeats, tile, f);
      distribute_columns(tile, results.begin, grads.begin, grads.stride, weights);
      results.write();
    }
  });
}

template <class T>
void trilinear_interpolation_points_backward(Cpu where, T* dpoints, const T* grad, const T* feats,
                                             const T* points, int64_t n, int64_t f) {
  const Tiles tiles(n, f);
  const int64_t across = tiles.across();
  const auto rows_of_tiles = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Tile first = tiles.at(i, 0);
      Position<Accumulate<T>> at[kTile], sums[kTile] = {};
      for (int64_t row = 0; row < first.rows; ++row) {
        at[row] = position_in_cell(points + (first.row + row) * 3);
      }
      for (int64_t j = 0; j < across; ++j) {
        const Tile tile = tiles.at(i, j);
        if (has_long_rows(tile)) {
          const T *grads = grad + tile.in(1, f), *corners = feats + tile.in(kCorners, f);
          for (int64_t row = 0; row < tile.rows; ++row) {
            add(sums[row], derivative_of_row(grads + row * f, corners + row * kCorners * f, f,
                                             at[row], tile.columns));
          }
        } else {
          const Input<T, 1> grads(grad, tile, f);
          const Input<T, kCorners> corners(feats, tile, f);
          add_derivatives_of_columns(tile, sums, grads.begin, corners.begin, corners.stride, at);
        }
      }
      for (int64_t row = 0; row < first.rows; ++row) {
        store_gradient(dpoints + (first.row + row) * 3, sums[row]);
      }
    }
  };
  where.for_ranges(tiles.down(), rows_of_tiles,
                   std::max<int64_t>(1, kGrain / std::max<int64_t>(1, across)));
}

#define INSTANTIATE(T)                                                                         \
  template void trilinear_interpolation(Cpu, T*, const T*, const T*, int64_t, int64_t);        \
  template void trilinear_interpolation_feats_backward(Cpu, T*, const T*, const T*, int64_t,   \
                                                       int64_t);                               \
  template void trilinear_interpolation_points_backward(Cpu, T*, const T*, const T*, const T*, \
                                                        int64_t, int64_t);
FOR_FLOATING(INSTANTIATE)
