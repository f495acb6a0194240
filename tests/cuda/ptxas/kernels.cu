// Kernels that spill, use shared memory or a stack, or call a function that is not inlined.
// nvcc-13.0.txt is nvcc's output with -Xptxas=-v -gencode=arch=compute_80,code=sm_80
// -gencode=arch=compute_90,code=sm_90. nvcc-13.2-debug.txt is its output with -G as well, for sm_80
// only.
namespace {

template <class T, int n>
__global__ void __launch_bounds__(1024, 2) spills(T* y, const T* x) {
  T values[n];
#pragma unroll
  for (int i = 0; i < n; ++i) values[i] = x[i * blockDim.x + threadIdx.x];
#pragma unroll
  for (int i = 0; i < n; ++i) {
#pragma unroll
    for (int j = 0; j < n; ++j) values[i] += values[i] * values[j];
  }
#pragma unroll
  for (int i = 0; i < n; ++i) y[i * blockDim.x + threadIdx.x] = values[i];
}

}  // namespace

__device__ __noinline__ float pick(const float* x, int n) {
  float values[40];
  for (int i = 0; i < n; ++i) values[i % 40] = x[i];
  return values[n * 7 % 40];
}

__global__ void shared_and_stack(float* x, int n) {
  __shared__ float memory[256];
  memory[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = pick(x, n) + memory[255 - threadIdx.x];
}

extern "C" __global__ void plain(int* x) { *x = 1; }

void launch(float* x) {
  spills<float, 40><<<1, 1024>>>(x, x);
  shared_and_stack<<<1, 256>>>(x, 1);
  plain<<<1, 1>>>(nullptr);
}
