// The headers of PyTorch and of the C++ library that bindings and their helpers need.
//
// load_op includes this file before each binding, and has g++ precompile it: a binding then takes
// 1.2 s instead of 2.6. For that it may have nothing but comments and includes in angle brackets.
//
// The headers are chosen for compile time: torch/extension.h would take many times as long, a
// header in torch/csrc includes pybind11 (see module.h), and ATen/ops/<name>.h includes much that
// <name>_ops.h, two lines long, does not.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_ops.h>
#include <ATen/ops/result_type_ops.h>
#include <Python.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>
