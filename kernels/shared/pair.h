// Two results of one formula, or where they go: elementwise<Formula>(where, n, Pair<T*>{dx, dy},
// g).
#pragma once

template <class T>
struct Pair {
  T first;
  T second;
};
