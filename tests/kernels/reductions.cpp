// C functions around the reductions, run serially or in three ranges.
#include "kernels/sum_single.h"
#include "kernels/two_norm.h"

using namespace kernels;

// Three ranges, the last one first.
static void in_three_ranges(int64_t n, int64_t, Cpu::Range range, const void* context) {
  range(context, n - n / 3, n);
  range(context, n / 3, n - n / 3);
  range(context, 0, n / 3);
}

extern "C" {

int64_t scratch_values(int64_t n) { return partial_sums(Cpu{}, n); }

void sum_serial(float* sum, float* scratch, const float* x, int64_t n) {
  sum_single(Cpu{}, sum, scratch, x, n);
}

void sum_in_ranges(float* sum, float* scratch, const float* x, int64_t n) {
  sum_single(Cpu{in_three_ranges}, sum, scratch, x, n);
}

void norm_in_ranges(float* norm, float* scratch, const float* a, const float* b, int64_t n) {
  two_norm(Cpu{in_three_ranges}, norm, scratch, a, b, n);
}
}
