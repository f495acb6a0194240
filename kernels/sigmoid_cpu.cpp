#include "kernels/shared/elementwise.h"
#include "kernels/sigmoid.h"
#include "kernels/sigmoid_math.h"

using namespace kernels;

template <class T>
void sigmoid(Cpu where, T* y, const T* x, int64_t n) {
  elementwise<Sigmoid>(where, n, y, x);
}

template <class T>
void sigmoid_backward(Cpu where, T* dx, const T* g, const T* y, int64_t n) {
  elementwise<SigmoidBackward>(where, n, dx, g, y);
}

#define INSTANTIATE(T)                               \
  template void sigmoid(Cpu, T*, const T*, int64_t); \
  template void sigmoid_backward(Cpu, T*, const T*, const T*, int64_t);
FOR_FLOATING(INSTANTIATE)
