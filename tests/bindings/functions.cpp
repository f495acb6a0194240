// A function for every kind of argument, result and C++ exception that bindings/shared/module.h
// supports.
#include <limits>
#include <new>
#include <stdexcept>

#include "bindings/shared/launch_error_message.h"
#include "bindings/shared/module.h"

at::Tensor same(const at::Tensor& x) { return x; }
at::Tensor same_by_value(at::Tensor x) { return x; }
at::Tensor undefined() { return at::Tensor(); }
at::Tensor value_or_undefined(const std::optional<at::Tensor>& x) {
  return x.value_or(at::Tensor());
}

std::tuple<at::Tensor, at::Tensor> swapped(const at::Tensor& first, const at::Tensor& second) {
  return {second, first};
}

void expect_int(int64_t value, bool is_lowest) {
  const int64_t lowest = std::numeric_limits<int64_t>::min();
  TORCH_CHECK(value == (is_lowest ? lowest : 42), "it is ", value);
}

void expect_half(double value) { TORCH_CHECK(value == 0.5, "it is ", value); }

void expect_gil(bool held) { TORCH_CHECK((PyGILState_Check() != 0) == held); }

void raise(int64_t which) {
  TORCH_CHECK(which != 0, "number ", which);
  TORCH_CHECK_VALUE(which != 1, "number ", which);
  TORCH_CHECK_TYPE(which != 2, "number ", which);
  TORCH_CHECK_INDEX(which != 3, "number ", which);
  TORCH_CHECK_NOT_IMPLEMENTED(which != 4, "number ", which);
  if (which == 5) throw std::runtime_error("number 5");
  if (which == 6) throw std::invalid_argument("number 6");
  if (which == 7) throw std::out_of_range("number 7");
  if (which == 8) throw std::bad_alloc();
  if (which == 9) throw 9;
}

void raise_launch_error(bool is_fault) {
  const kernels::LaunchError error("void launcher()", "cudaErrorName", "what it means", is_fault);
  TORCH_CHECK(false, bindings::launch_error_message("op", error));
}

PYTHON_MODULE(module) {
  module.doc("What the module is for.");
  module.define<same>("same", "What it does.", "x");
  module.define<same>("another_name", "The same under another name.", "y");
  module.define<same_by_value>("same_by_value", "", "x");
  module.define<undefined>("undefined", "");
  module.define<value_or_undefined>("value_or_undefined", "", "x");
  module.define<swapped>("swapped", "", "first", "second");
  module.define<expect_int>("expect_int", "", "value", "is_lowest");
  module.define<expect_half>("expect_half", "", "value");
  module.define<expect_gil>("expect_gil", "", "held");
  module.define<raise>("raise_", "", "which");
  module.define<raise_launch_error>("raise_launch_error", "", "is_fault");
}
