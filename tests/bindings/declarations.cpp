// Includes bindings/shared/module.h, which declares parts of PyTorch, after PyTorch's own headers.
// The file only has to compile.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstddef>
#include <type_traits>

#include "bindings/shared/module.h"

// A wrong type of a variable or of a result does not compile. Wrong arguments would declare a
// function that PyTorch lacks, and no binding could be loaded.
static_assert(offsetof(bindings::TensorObject, tensor) == offsetof(THPVariable, cdata));
static_assert(
    std::is_same_v<decltype(bindings::TensorObject::tensor), decltype(THPVariable::cdata)>);
static_assert(sizeof(bindings::TensorObject) <= sizeof(THPVariable));
static_assert(std::is_same_v<decltype(&torch::translate_exception_to_python),
                             void (*)(const std::exception_ptr&)>);
