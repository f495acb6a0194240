// Replaces kernel.cu on a machine without nvcc.
#include "value.h"

constexpr long kKernelValue = 0;

void add(float* c, const float* a, const float* b, int n) {
  for (int i = 0; i < n; ++i) c[i] = a[i] + b[i] + kKernelValue;
}

long value() { return kKernelValue + kHeaderValue; }
