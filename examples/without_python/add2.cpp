// Registers add2 with PyTorch in a program without Python, in which bindings/add2.py cannot do it.
//
// The binding's functions are used as they are. What it defines for Python is left out.
#include "bindings/shared/module.h"

#undef PYTHON_MODULE
#define PYTHON_MODULE(module) [[maybe_unused]] static void unused(bindings::Module& module)
#include <torch/library.h>

#include "bindings/add2.cpp"

TORCH_LIBRARY(jit_loader, library) { library.def("add2(Tensor a, Tensor b) -> Tensor"); }
TORCH_LIBRARY_IMPL(jit_loader, CPU, library) { library.impl("add2", forward); }
