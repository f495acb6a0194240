// Replaces the classic kernel on a machine without nvcc.

void launch_add2(float* c, const float* a, const float* b, int n) {
  for (int i = 0; i < n; ++i) c[i] = a[i] + b[i];
}
