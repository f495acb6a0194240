// NAME on the CPU: the loop is in kernels/shared/rows.h.
#include "kernels/NAME.h"
#include "kernels/NAME_math.h"
#include "kernels/shared/rows.h"

using namespace kernels;

template <class T>
void NAME(Cpu where, T* y, const T* x, int64_t rows, int64_t width) {
  rowwise<Name>(where, y, x, rows, width);
}

// Compiles it for each type that a tensor may have.
#define INSTANTIATE(T) template void NAME(Cpu, T*, const T*, int64_t, int64_t);
FOR_FLOATING(INSTANTIATE)
