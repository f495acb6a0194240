#include <type_traits>

#include "kernels/shared/reduction.h"
#include "kernels/two_norm.h"
#include "kernels/two_norm_math.h"

using namespace kernels;

template <class T>
void two_norm(Cpu where, T* norm, Accumulate<T>* scratch, const T* a, const T* b, int64_t n) {
  reduce<SquaredDifference, SquareRoot>(where, n, norm, scratch, a, b);
}

// Blocks are for Half alone: see block.h.
static void gradients_of_block(TwoNormGradient<float> gradient, Half* da, Half* db, const Half* a,
                               const Half* b) {
  const Block<Half> x = load_block(a), y = load_block(b);
  Block<Half> first, second;
  for (int i = 0; i < kBlock; ++i) {
    first.value[i] = gradient(x.value[i], y.value[i]);
    second.value[i] = -first.value[i];
  }
  store_block(da, first);
  if (db != nullptr) store_block(db, second);
}

// For 2^24 elements on 2 cores, PyTorch's operations take 1.9 (float64) to 3.0 (bfloat16) times as
// long if the results' memory was used before. If it is fresh from the system, which is usual at
// this size, they take 1.6 to 1.8 times as long: the system then needs most of the time.
template <class T>
void two_norm_backward(Cpu where, T* da, T* db, const T* grad, const T* a, const T* b,
                       const T* norm, int64_t n) {
  const TwoNormGradient<Accumulate<T>> gradient(widen(*grad), widen(*norm));
  where.for_ranges(n, [=](int64_t begin, int64_t end) {
    int64_t i = begin;
    if constexpr (std::is_same_v<T, Half>) {
      for (; i + kBlock <= end; i += kBlock) {
        gradients_of_block(gradient, da + i, db != nullptr ? db + i : nullptr, a + i, b + i);
      }
    }
    if (db == nullptr) {
      for (; i < end; ++i) da[i] = narrow<T>(gradient(widen(a[i]), widen(b[i])));
    } else {
      for (; i < end; ++i) {
        const auto value = gradient(widen(a[i]), widen(b[i]));
        da[i] = narrow<T>(value);
        db[i] = narrow<T>(-value);
      }
    }
  });
}

#define INSTANTIATE(T)                                                          \
  template void two_norm(Cpu, T*, Accumulate<T>*, const T*, const T*, int64_t); \
  template void two_norm_backward(Cpu, T*, T*, const T*, const T*, const T*, const T*, int64_t);
FOR_FLOATING(INSTANTIATE)
