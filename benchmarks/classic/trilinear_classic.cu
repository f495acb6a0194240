// Classic kernels to compare with: a thread per cell and feature in blocks of 16 x 16, int
// indices, on the default stream. The grid's y has at most 65,535 blocks, or 1,048,560 features.

struct Weights {
  float u, a, b, c, d;
};

__device__ Weights weights_of(const float* point) {
  float u = (point[0] + 1) / 2, v = (point[1] + 1) / 2, w = (point[2] + 1) / 2;
  return {u, (1 - v) * (1 - w), (1 - v) * w, v * (1 - w), v * w};
}

__global__ void trilinear_kernel(float* out, const float* feats, const float* points, int n,
                                 int f) {
  int cell = blockIdx.x * blockDim.x + threadIdx.x;
  int feature = blockIdx.y * blockDim.y + threadIdx.y;
  if (cell >= n || feature >= f) return;
  Weights k = weights_of(points + 3 * cell);
  const float* x = feats + 8 * f * cell + feature;
  out[cell * f + feature] =
      (1 - k.u) * (k.a * x[0] + k.b * x[f] + k.c * x[2 * f] + k.d * x[3 * f]) +
      k.u * (k.a * x[4 * f] + k.b * x[5 * f] + k.c * x[6 * f] + k.d * x[7 * f]);
}

__global__ void trilinear_backward_kernel(float* dfeats, const float* grad, const float* points,
                                          int n, int f) {
  int cell = blockIdx.x * blockDim.x + threadIdx.x;
  int feature = blockIdx.y * blockDim.y + threadIdx.y;
  if (cell >= n || feature >= f) return;
  Weights k = weights_of(points + 3 * cell);
  float g = grad[cell * f + feature];
  float* dx = dfeats + 8 * f * cell + feature;
  dx[0] = (1 - k.u) * k.a * g;
  dx[f] = (1 - k.u) * k.b * g;
  dx[2 * f] = (1 - k.u) * k.c * g;
  dx[3 * f] = (1 - k.u) * k.d * g;
  dx[4 * f] = k.u * k.a * g;
  dx[5 * f] = k.u * k.b * g;
  dx[6 * f] = k.u * k.c * g;
  dx[7 * f] = k.u * k.d * g;
}

static dim3 blocks(int n, int f) { return dim3((n + 15) / 16, (f + 15) / 16); }

void launch_trilinear(float* out, const float* feats, const float* points, int n, int f) {
  trilinear_kernel<<<blocks(n, f), dim3(16, 16)>>>(out, feats, points, n, f);
}

void launch_trilinear_backward(float* dfeats, const float* grad, const float* points, int n,
                               int f) {
  trilinear_backward_kernel<<<blocks(n, f), dim3(16, 16)>>>(dfeats, grad, points, n, f);
}
