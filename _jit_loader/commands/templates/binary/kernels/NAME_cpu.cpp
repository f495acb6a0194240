// NAME on the CPU: the loop is in kernels/shared/elementwise.h.
#include "kernels/NAME.h"
#include "kernels/NAME_math.h"
#include "kernels/shared/elementwise.h"

using namespace kernels;

template <class T>
void NAME(Cpu where, T* c, const T* a, const T* b, int64_t n) {
  elementwise<Name>(where, n, c, a, b);
}

// Compiles it for each type that a tensor may have.
#define INSTANTIATE(T) template void NAME(Cpu, T*, const T*, const T*, int64_t);
FOR_FLOATING(INSTANTIATE)
