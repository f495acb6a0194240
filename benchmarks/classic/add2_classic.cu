// A classic kernel to compare with: one float per thread, on the default stream.

__global__ void add2_kernel(float* c, const float* a, const float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

void launch_add2(float* c, const float* a, const float* b, int n) {
  add2_kernel<<<(n + 1023) / 1024, 1024>>>(c, a, b, n);
}
