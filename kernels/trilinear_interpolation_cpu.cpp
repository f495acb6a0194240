// The loops run over Accumulate<T>: parts of 16-bit arrays pass through buffers of floats. The work
// is cut into tiles by n and f alone, so that no result depends on the number of threads.
#include <algorithm>
#include <type_traits>

#include "kernels/block.h"
#include "kernels/trilinear_interpolation.h"
#include "kernels/trilinear_interpolation_math.h"

namespace {

// Elements of (n, f) in a tile: 8 times as many floats are half of a first-level cache of 32 KiB.
constexpr int64_t kTile = 512;

// Tiles that are worth a thread.
constexpr int64_t kGrain = 8;

// Some columns of some rows of (n, f): of whole rows, or of a single one.
struct Tile {
  int64_t row, rows, column, columns;
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

// A tile of an array (n, lines, f) to read from.
template <class T, int lines>
class Input {
 public:
  using A = Accumulate<T>;

  Input(const T* array, const Tile& tile, int64_t f) {
    const T* from = array + tile.row * lines * f + tile.column;
    if constexpr (!kIsBuffered<T>) {
      begin_ = from;
      stride = f;
    } else {
      begin_ = buffer_;
      stride = tile.columns;
      if (tile.columns == f) {
        widen_array(buffer_, from, tile.rows * lines * f);
      } else {
        for (int i = 0; i < lines; ++i) widen_array(buffer_ + i * stride, from + i * f, stride);
      }
    }
  }

  // The first line of a row of the tile; the next is `stride` behind it.
  const A* row(int64_t i) const { return begin_ + i * lines * stride; }

  int64_t stride;

 private:
  const A* begin_;
  A buffer_[kBufferSize<T, lines>];
};

// A tile of an array (n, lines, f) to write to, which write() completes.
template <class T, int lines>
class Output {
 public:
  using A = Accumulate<T>;

  Output(T* array, const Tile& tile, int64_t f)
      : tile_(tile), f_(f), to_(array + tile.row * lines * f + tile.column) {
    if constexpr (kIsBuffered<T>) {
      begin_ = buffer_;
      stride = tile.columns;
    } else {
      begin_ = to_;
      stride = f;
    }
  }

  // The first line of a row of the tile; the next is `stride` behind it.
  A* row(int64_t i) { return begin_ + i * lines * stride; }

  void write() const {
    if constexpr (kIsBuffered<T>) {
      if (stride == f_) {
        narrow_array(to_, buffer_, tile_.rows * lines * f_);
      } else {
        for (int i = 0; i < lines; ++i) narrow_array(to_ + i * f_, buffer_ + i * stride, stride);
      }
    }
  }

  int64_t stride;

 private:
  Tile tile_;
  int64_t f_;
  T* to_;
  A* begin_;
  A buffer_[kBufferSize<T, lines>];
};

template <class A>
void interpolate(A* __restrict out, const A* feats, int64_t stride, const Weights<A>& weights,
                 int64_t columns) {
  const A* line[kCorners];
  for (int k = 0; k < kCorners; ++k) line[k] = feats + k * stride;
  for (int64_t i = 0; i < columns; ++i) {
    A sum = weights.corner[0] * line[0][i];
    for (int k = 1; k < kCorners; ++k) sum += weights.corner[k] * line[k][i];
    out[i] = sum;
  }
}

template <class A>
void scale(A* __restrict out, const A* in, A factor, int64_t columns) {
  for (int64_t i = 0; i < columns; ++i) out[i] = factor * in[i];
}

// The sum over the columns of grad times the derivative by the position. Column i is added up in
// lane i % kLanes, which is what a compiler can vectorise without reordering sums of its own.
constexpr int kLanes = 16;

template <class A>
struct Lanes {
  A u[kLanes] = {}, v[kLanes] = {}, w[kLanes] = {};
};

template <class A>
void add_derivative(Lanes<A>& sums, const A* grad, const A* feats, int64_t stride,
                    const Position<A>& at, int columns) {
  for (int i = 0; i < columns; ++i) {
    A values[kCorners];
    for (int k = 0; k < kCorners; ++k) values[k] = feats[k * stride + i];
    const Position<A> slope = derivative(at, values);
    sums.u[i] += grad[i] * slope.u;
    sums.v[i] += grad[i] * slope.v;
    sums.w[i] += grad[i] * slope.w;
  }
}

template <class A>
A sum_of(const A (&lanes)[kLanes]) {
  A sum = 0;
  for (const A lane : lanes) sum += lane;
  return sum;
}

template <class A>
void add_derivatives(Position<A>& sum, const A* grad, const A* feats, int64_t stride,
                     const Position<A>& at, int64_t columns) {
  Lanes<A> sums;
  int64_t i = 0;
  for (; i + kLanes <= columns; i += kLanes) {
    add_derivative(sums, grad + i, feats + i, stride, at, kLanes);
  }
  add_derivative(sums, grad + i, feats + i, stride, at, static_cast<int>(columns - i));
  sum.u += sum_of(sums.u);
  sum.v += sum_of(sums.v);
  sum.w += sum_of(sums.w);
}

}  // namespace

template <class T>
void trilinear_interpolation(Cpu where, T* out, const T* feats, const T* points, int64_t n,
                             int64_t f) {
  for_tiles(where, n, f, [=](const Tile& tile) {
    const Input<T, kCorners> corners(feats, tile, f);
    Output<T, 1> results(out, tile, f);
    for (int64_t i = 0; i < tile.rows; ++i) {
      const auto weights = corner_weights(position_in_cell(points + (tile.row + i) * 3));
      interpolate(results.row(i), corners.row(i), corners.stride, weights, tile.columns);
    }
    results.write();
  });
}

template <class T>
void trilinear_interpolation_feats_backward(Cpu where, T* dfeats, const T* grad, const T* points,
                                            int64_t n, int64_t f) {
  for_tiles(where, n, f, [=](const Tile& tile) {
    const Input<T, 1> grads(grad, tile, f);
    Output<T, kCorners> results(dfeats, tile, f);
    for (int64_t i = 0; i < tile.rows; ++i) {
      const auto weights = corner_weights(position_in_cell(points + (tile.row + i) * 3));
      for (int k = 0; k < kCorners; ++k) {
        scale(results.row(i) + k * results.stride, grads.row(i), weights.corner[k], tile.columns);
      }
    }
    results.write();
  });
}

template <class T>
void trilinear_interpolation_points_backward(Cpu where, T* dpoints, const T* grad, const T* feats,
                                             const T* points, int64_t n, int64_t f) {
  const Tiles tiles(n, f);
  const int64_t across = tiles.across();
  const auto row_range = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Position<Accumulate<T>> sums[kTile] = {};
      for (int64_t j = 0; j < across; ++j) {
        const Tile tile = tiles.at(i, j);
        const Input<T, 1> grads(grad, tile, f);
        const Input<T, kCorners> corners(feats, tile, f);
        for (int64_t row = 0; row < tile.rows; ++row) {
          const auto at = position_in_cell(points + (tile.row + row) * 3);
          add_derivatives(sums[row], grads.row(row), corners.row(row), corners.stride, at,
                          tile.columns);
        }
      }
      const Tile tile = tiles.at(i, 0);
      for (int64_t row = 0; row < tile.rows; ++row) {
        store_gradient(dpoints + (tile.row + row) * 3, sums[row]);
      }
    }
  };
  where.for_ranges(tiles.down(), row_range, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, across)));
}

#define INSTANTIATE(T)                                                                         \
  template void trilinear_interpolation(Cpu, T*, const T*, const T*, int64_t, int64_t);        \
  template void trilinear_interpolation_feats_backward(Cpu, T*, const T*, const T*, int64_t,   \
                                                       int64_t);                               \
  template void trilinear_interpolation_points_backward(Cpu, T*, const T*, const T*, const T*, \
                                                        int64_t, int64_t);
FOR_FLOATING(INSTANTIATE)
