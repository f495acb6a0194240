// A classic binding to compare with: torch/extension.h, raw pointers, no checks.
#include <torch/extension.h>

void launch_add2(float* c, const float* a, const float* b, int n);

void torch_launch_add2(torch::Tensor& c, const torch::Tensor& a, const torch::Tensor& b,
                       int64_t n) {
  launch_add2(c.data_ptr<float>(), a.data_ptr<float>(), b.data_ptr<float>(), n);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("torch_launch_add2", &torch_launch_add2, "c = a + b");
}
