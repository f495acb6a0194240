#include "kernels/my_op.h"
#include "kernels/my_op_math.h"
#include "kernels/shared/elementwise.cuh"

using namespace kernels;

template <class T>
void my_op(Cuda where, T* z, const T* x, const T* y, int64_t n) {
  elementwise<MyOp>(where, n, z, x, y);
}

// One read and two writes of 2^28 floats take 770 us on an H200, 86% of the memory's peak (ncu).
// torch.compile's kernel takes the same time, eager PyTorch 1.3 times as long.
template <class T>
void my_op_backward(Cuda where, T* dx, T* dy, const T* g, int64_t n) {
  elementwise<MyOpBackward>(where, n, Pair<T*>{dx, dy}, g);
}

#define INSTANTIATE(T)                                        \
  template void my_op(Cuda, T*, const T*, const T*, int64_t); \
  template void my_op_backward(Cuda, T*, T*, const T*, int64_t);
FOR_FLOATING(INSTANTIATE)
