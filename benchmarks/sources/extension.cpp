// Binds value() as PyTorch's tutorials do.
#include <torch/extension.h>

long value();

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("value", &value); }
