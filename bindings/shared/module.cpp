// The Python module of an op, made by pybind11. Including pybind11 takes 3 s, so this is a separate
// file, which is not compiled again after an edit of the binding.
//
// The weak symbols give way to a binding that has its own PYBIND11_MODULE.
#include <pybind11/pybind11.h>

// Declared as in bindings/shared/module.h, which would include PyTorch's headers too.
[[gnu::weak]] void define_module(PyObject* module);
namespace bindings {
void set_python_error();
}

// pybind11 translates exceptions of the C++ library; PyTorch has registered translators for its
// own.
void bindings::set_python_error() {
  try {
    throw;
  } catch (pybind11::error_already_set& error) {
    error.restore();
  } catch (...) {
    pybind11::detail::try_translate_exceptions();
  }
}

#define INIT_FUNCTION(name) INIT_FUNCTION_OF(name)  // expands the macro `name` first
#define INIT_FUNCTION_OF(name) PyInit_##name
extern "C" [[gnu::weak]] PyObject* INIT_FUNCTION(TORCH_EXTENSION_NAME)();

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  define_module(module.ptr());
  if (PyErr_Occurred() != nullptr) throw pybind11::error_already_set();
}
