// Two results of one formula, or the two arrays for them:
// elementwise<Formula>(where, n, Pair<T*>{dx, dy}, g).
#pragma once

namespace kernels {

template <class T>
struct Pair {
  T first;
  T second;
};

}  // namespace kernels
