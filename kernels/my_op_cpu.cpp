#include "kernels/my_op.h"
#include "kernels/my_op_math.h"
#include "kernels/shared/elementwise.h"

using namespace kernels;

template <class T>
void my_op(Cpu where, T* z, const T* x, const T* y, int64_t n) {
  elementwise<MyOp>(where, n, z, x, y);
}

// Memory-bound: this moves three arrays; PyTorch's two kernels move four. For 2^24 floats on 2
// cores they take 1.29 times as long at the speed of a copy (29 GB/s), and 1.1 to 1.3 times as long
// if the results' memory is fresh from the system, which then takes most of the time (6 GB/s).
template <class T>
void my_op_backward(Cpu where, T* dx, T* dy, const T* g, int64_t n) {
  elementwise<MyOpBackward>(where, n, Pair<T*>{dx, dy}, g);
}

#define INSTANTIATE(T)                                       \
  template void my_op(Cpu, T*, const T*, const T*, int64_t); \
  template void my_op_backward(Cpu, T*, T*, const T*, int64_t);
FOR_FLOATING(INSTANTIATE)
