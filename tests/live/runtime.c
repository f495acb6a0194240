/* Stands in for CUDA's runtime and NVRTC: nothing compiles, and what is launched is counted. */
#include <stddef.h>

const void* launched;
struct Dim3 {
  unsigned x, y, z;
};

int __cudaGetKernel(void** handle, const void* function) {
  *handle = (void*)((const char*)function + 1);
  return 0;
}
int cudaLaunchKernel(const void* f, struct Dim3 g, struct Dim3 b, void** a, size_t s, void* t) {
  launched = f;
  return g.x + b.z + s == 1 + 6 + 7 && a == NULL && t == NULL ? 0 : 1;
}
int nvrtcCreateProgram(void** program) { return *program = NULL, 4; }
