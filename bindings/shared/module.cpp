// The Python module of an op, by pybind11. To include that takes 3 s, so it is compiled here:
// beside the binding, and not again when the binding is edited.
//
// A binding with a PYBIND11_MODULE of its own has that instead: what is weak here gives way.
#include <pybind11/pybind11.h>

// As bindings/shared/module.h declares them, which would bring PyTorch's headers too.
[[gnu::weak]] void define_module(PyObject* module);
void set_python_error();

// Called where a C++ exception is being handled: the translators are pybind11's, for those of the
// C++ library, and the ones that PyTorch has registered for its own.
void set_python_error() {
  try {
    throw;
  } catch (pybind11::error_already_set& error) {
    error.restore();
  } catch (...) {
    pybind11::detail::try_translate_exceptions();
  }
}

#define INIT_FUNCTION(name) INIT_FUNCTION_OF(name)  // one more, so that the name is replaced
#define INIT_FUNCTION_OF(name) PyInit_##name
extern "C" [[gnu::weak]] PyObject* INIT_FUNCTION(TORCH_EXTENSION_NAME)();

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  define_module(module.ptr());
  if (PyErr_Occurred() != nullptr) throw pybind11::error_already_set();
}
