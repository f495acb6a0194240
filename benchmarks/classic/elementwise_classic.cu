// Classic kernels to compare with: one float per thread, int indices (less than 2^31
// elements), on the default stream.

constexpr int kThreads = 1024;

static int blocks(int n) { return (n + kThreads - 1) / kThreads; }

__global__ void my_op_kernel(float* z, const float* x, const float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = 3 * x[i] - y[i];
}

__global__ void my_op_backward_kernel(float* dx, float* dy, const float* grad, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    dx[i] = 3 * grad[i];
    dy[i] = -grad[i];
  }
}

__global__ void sigmoid_kernel(float* y, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 1 / (1 + expf(-x[i]));
}

__global__ void sigmoid_backward_kernel(float* dx, const float* grad, const float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) dx[i] = grad[i] * y[i] * (1 - y[i]);
}

void launch_my_op(float* z, const float* x, const float* y, int n) {
  my_op_kernel<<<blocks(n), kThreads>>>(z, x, y, n);
}

void launch_my_op_backward(float* dx, float* dy, const float* grad, int n) {
  my_op_backward_kernel<<<blocks(n), kThreads>>>(dx, dy, grad, n);
}

void launch_sigmoid(float* y, const float* x, int n) {
  sigmoid_kernel<<<blocks(n), kThreads>>>(y, x, n);
}

void launch_sigmoid_backward(float* dx, const float* grad, const float* y, int n) {
  sigmoid_backward_kernel<<<blocks(n), kThreads>>>(dx, grad, y, n);
}
