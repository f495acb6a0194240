// Classic reductions to compare with: a tree in shared memory, then an atomicAdd per block, so
// the last bits differ from run to run. One float per thread, int indices, on the default stream.

constexpr int kThreads = 256;

static int blocks(int n) { return (n + kThreads - 1) / kThreads; }

__device__ void add_block(float* sum, float value) {
  __shared__ float values[kThreads];
  values[threadIdx.x] = value;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) values[threadIdx.x] += values[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(sum, values[0]);
}

__global__ void sum_kernel(float* sum, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  add_block(sum, i < n ? x[i] : 0);
}

__global__ void squares_kernel(float* sum, const float* a, const float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float difference = i < n ? a[i] - b[i] : 0;
  add_block(sum, difference * difference);
}

__global__ void root_kernel(float* norm) { *norm = sqrtf(*norm); }

__global__ void two_norm_backward_kernel(float* da, float* db, const float* grad, const float* norm,
                                         const float* a, const float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float gradient = *grad * (a[i] - b[i]) / *norm;
    da[i] = gradient;
    db[i] = -gradient;
  }
}

void launch_sum_single(float* sum, const float* x, int n) {
  sum_kernel<<<blocks(n), kThreads>>>(sum, x, n);
}

void launch_two_norm(float* norm, const float* a, const float* b, int n) {
  squares_kernel<<<blocks(n), kThreads>>>(norm, a, b, n);
  root_kernel<<<1, 1>>>(norm);
}

void launch_two_norm_backward(float* da, float* db, const float* grad, const float* norm,
                              const float* a, const float* b, int n) {
  two_norm_backward_kernel<<<blocks(n), kThreads>>>(da, db, grad, norm, a, b, n);
}
