// C functions around the conversions of kernels/shared/simd.h; n is a multiple of 16.
#include "kernels/shared/simd.h"

#include <stdint.h>

using namespace kernels;

template <class T>
void through(T* out, const T* in, int64_t n) {
  for (int64_t i = 0; i < n; i += kSimdLanes<T>) store_simd(out + i, load_simd(in + i));
}

template <class T>
void vectors(T* out, const float* in, int64_t n) {
  for (int64_t i = 0; i < n; i += kSimdLanes<T>) store_simd(out + i, load_simd(in + i));
}

template <class T>
void elements(T* out, const float* in, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = narrow<T>(in[i]);
}

#define FUNCTIONS(T)                                                                       \
  extern "C" void through_##T(T* out, const T* in, int64_t n) { through(out, in, n); }     \
  extern "C" void vectors_##T(T* out, const float* in, int64_t n) { vectors(out, in, n); } \
  extern "C" void elements_##T(T* out, const float* in, int64_t n) { elements(out, in, n); }

FUNCTIONS(Half)
FUNCTIONS(BFloat16)
