// C functions around the kernels, so that ctypes can call them without any framework.
#include "kernels/add2.h"
#include "kernels/shared/half.h"

using namespace kernels;

extern "C" {

void widen_half(float* out, const Half* in, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = widen(in[i]);
}

void widen_bfloat16(float* out, const BFloat16* in, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = widen(in[i]);
}

void narrow_half(Half* out, const float* in, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = narrow<Half>(in[i]);
}

void narrow_bfloat16(BFloat16* out, const float* in, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = narrow<BFloat16>(in[i]);
}

void add2_serial(float* c, const float* a, const float* b, int64_t n) { add2(Cpu{}, c, a, b, n); }

// Three ranges, the last one first.
void add2_in_ranges(float* c, const float* a, const float* b, int64_t n) {
  const auto in_ranges = [](int64_t size, int64_t, Cpu::Range range, const void* context) {
    range(context, size / 2, size);
    range(context, size / 3, size / 2);
    range(context, 0, size / 3);
  };
  add2(Cpu{in_ranges}, c, a, b, n);
}
}
