#include "kernels/add2.h"
#include "kernels/add2_math.h"
#include "kernels/shared/elementwise.h"

using namespace kernels;

template <class T>
void add2(Cpu where, T* c, const T* a, const T* b, int64_t n) {
  elementwise<Add2>(where, n, c, a, b);
}

#define INSTANTIATE(T) template void add2(Cpu, T*, const T*, const T*, int64_t);
FOR_FLOATING(INSTANTIATE)
