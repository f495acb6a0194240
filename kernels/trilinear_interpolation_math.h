// The formulas for one cell; corner 4 iu + 2 iv + iw is at (iu, iv, iw).
#pragma once

#include "kernels/shared/half.h"

constexpr int kCorners = 8;

// A position in the cell, from 0 to 1 along each side; or a derivative with respect to it.
template <class A>
struct Position {
  A u, v, w;
};

template <class A>
HOST_DEVICE void add(Position<A>& sum, const Position<A>& term) {
  sum.u += term.u;
  sum.v += term.v;
  sum.w += term.w;
}

// The position for coordinates from -1 to 1.
template <class T>
HOST_DEVICE Position<kernels::Accumulate<T>> position_in_cell(const T* coordinates) {
  return {(kernels::widen(coordinates[0]) + 1) / 2, (kernels::widen(coordinates[1]) + 1) / 2,
          (kernels::widen(coordinates[2]) + 1) / 2};
}

template <class A>
HOST_DEVICE A corner_weight(const Position<A>& at, unsigned corner) {
  const A u = corner & 4 ? at.u : 1 - at.u;
  const A v = corner & 2 ? at.v : 1 - at.v;
  const A w = corner & 1 ? at.w : 1 - at.w;
  return u * (v * w);
}

template <class A>
struct Weights {
  A corner[kCorners];
};

template <class A>
HOST_DEVICE Weights<A> corner_weights(const Position<A>& at) {
  Weights<A> weights;
  for (int k = 0; k < kCorners; ++k) weights.corner[k] = corner_weight(at, k);
  return weights;
}

// The derivative of the interpolated value with respect to the position, from the values at the
// corners. If Value is a vector, each of its elements is interpolated.
template <class A, class Value>
HOST_DEVICE Position<Value> derivative(const Position<A>& at, const Value (&feats)[kCorners]) {
  // First along w: the value and its derivative on the four edges (iu, iv). Then along v, then u.
  Value on_edge[4], dw_on_edge[4];
  for (int k = 0; k < 4; ++k) {
    dw_on_edge[k] = feats[2 * k + 1] - feats[2 * k];
    on_edge[k] = feats[2 * k] + at.w * dw_on_edge[k];
  }
  Value on_face[2], dv_on_face[2], dw_on_face[2];
  for (int k = 0; k < 2; ++k) {
    dv_on_face[k] = on_edge[2 * k + 1] - on_edge[2 * k];
    on_face[k] = on_edge[2 * k] + at.v * dv_on_face[k];
    dw_on_face[k] = dw_on_edge[2 * k] + at.v * (dw_on_edge[2 * k + 1] - dw_on_edge[2 * k]);
  }
  return {on_face[1] - on_face[0], dv_on_face[0] + at.u * (dv_on_face[1] - dv_on_face[0]),
          dw_on_face[0] + at.u * (dw_on_face[1] - dw_on_face[0])};
}

// Stores the gradient with respect to the coordinates: they range over 2, positions over 1.
template <class T>
HOST_DEVICE void store_gradient(T* to, const Position<kernels::Accumulate<T>>& gradient) {
  to[0] = kernels::narrow<T>(gradient.u / 2);
  to[1] = kernels::narrow<T>(gradient.v / 2);
  to[2] = kernels::narrow<T>(gradient.w / 2);
}
