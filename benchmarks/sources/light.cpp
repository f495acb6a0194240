// Binds value() with pybind11 only.
#include <pybind11/pybind11.h>

long value();

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("value", &value); }
