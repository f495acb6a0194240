// Makes C++ functions available in a Python module, with CPython's C API only.
//
// It avoids pybind11, with which add2's binding took more than twice as long to compile. Of the
// time that remains, most is ATen/core/Tensor.h (1.6 of 2.6 s, g++ 12, medians). PyTorch's headers
// for tensors and errors in Python include pybind11, so the declarations needed from them are
// repeated here, and a test compares them.
#pragma once

#include "bindings/shared/pytorch.h"
#include "bindings/shared/text.h"

// From torch/csrc/autograd/python_variable.h: torch.Tensor, torch.nn.Parameter, and the Python
// object of a tensor (None for an undefined tensor).
extern PyObject* THPVariableClass;
extern PyObject* ParameterClass;
PyObject* THPVariable_Wrap(const at::TensorBase& tensor);

// From torch/csrc/Exceptions.h: sets the Python error for an exception of PyTorch's, or a
// RuntimeError for another std::exception.
namespace torch {
void translate_exception_to_python(const std::exception_ptr& exception);
}

namespace bindings {

// Sets the Python error for the C++ exception that is being handled, the same as pybind11 would.
inline void set_python_error() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::out_of_range& error) {
    PyErr_SetString(PyExc_IndexError, error.what());
  } catch (const std::exception&) {
    torch::translate_exception_to_python(std::current_exception());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "Caught an unknown exception!");
  }
}

// The first members of THPVariable, the object of every torch.Tensor.
struct TensorObject {
  PyObject_HEAD at::Tensor tensor;
};

// Releases the GIL in a scope, so that other Python threads can run.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

namespace detail {

struct Release {
  void operator()(PyObject* object) const { Py_DECREF(object); }
};
using Object = std::unique_ptr<PyObject, Release>;  // owns one reference

// The description of a C++ function; the Python function that calls it owns this.
struct Function {
  std::string name;
  std::string doc;
  std::vector<const char*> parameters;
  PyMethodDef method;
};

// One argument of a call.
struct Argument {
  const Function& function;
  const char* parameter;
  PyObject* value;

  // Sets a TypeError and returns false.
  bool must_be(const char* expected, const char* got = nullptr) const {
    PyErr_Format(PyExc_TypeError, "%s(): argument '%s' must be %s, not %s", function.name.c_str(),
                 parameter, expected, got != nullptr ? got : Py_TYPE(value)->tp_name);
    return false;
  }
};

// from_python sets `to` to the argument's value, or sets a Python error and returns false.

inline bool from_python(const Argument& argument, at::Tensor& to) {
  // Not PyObject_IsInstance: an object may claim a __class__ whose memory layout it does not have.
  if (!PyObject_TypeCheck(argument.value, reinterpret_cast<PyTypeObject*>(THPVariableClass))) {
    return argument.must_be("Tensor", argument.value == Py_None ? "None" : nullptr);
  }
  to = reinterpret_cast<TensorObject*>(argument.value)->tensor;
  return true;
}

inline bool from_python(const Argument& argument, std::optional<at::Tensor>& to) {
  if (argument.value == Py_None) return true;
  return from_python(argument, to.emplace());
}

inline bool from_python(const Argument& argument, int64_t& to) {
  const Object index(PyNumber_Index(argument.value));  // accepts int and numpy integers, not float
  if (index == nullptr) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false;
    PyErr_Clear();
    return argument.must_be("int");
  }
  int overflow = 0;
  to = PyLong_AsLongLongAndOverflow(index.get(), &overflow);
  return overflow == 0 || argument.must_be("int of 64 bits", "one that needs more");
}

inline bool from_python(const Argument& argument, double& to) {
  to = PyFloat_AsDouble(argument.value);
  if (to != -1.0 || PyErr_Occurred() == nullptr) return true;
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false;
  PyErr_Clear();
  return argument.must_be("float");
}

inline bool from_python(const Argument& argument, bool& to) {
  to = argument.value == Py_True;
  return PyBool_Check(argument.value) || argument.must_be("bool");
}

template <size_t n>
bool from_python(const Argument& argument, std::array<bool, n>& to) {
  const Object sequence(PySequence_Fast(argument.value, ""));
  const std::string expected = "a sequence of " + std::to_string(n) + " bools";
  if (sequence == nullptr) {
    PyErr_Clear();
    return argument.must_be(expected.c_str());
  }
  const Py_ssize_t length = PySequence_Fast_GET_SIZE(sequence.get());
  if (length != static_cast<Py_ssize_t>(n)) {
    return argument.must_be(expected.c_str(), ("one of " + std::to_string(length)).c_str());
  }
  PyObject* const* items = PySequence_Fast_ITEMS(sequence.get());
  std::transform(items, items + n, to.begin(), [](PyObject* item) { return item == Py_True; });
  return std::all_of(items, items + n, [](PyObject* item) { return PyBool_Check(item) != 0; }) ||
         argument.must_be(expected.c_str(), "one of other values");
}

// to_python returns a new reference, or sets a Python error and returns nullptr.

inline PyObject* to_python(const at::Tensor& tensor) { return THPVariable_Wrap(tensor); }

// count: how many of the values; they are the first ones.
template <class... T>
PyObject* to_python(const std::tuple<T...>& values, size_t count = sizeof...(T)) {
  Object tuple(PyTuple_New(static_cast<Py_ssize_t>(count)));
  size_t position = 0;
  const auto add = [&](const auto& value) {
    if (position == count) return true;
    PyObject* item = to_python(value);
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(position++), item);
    return item != nullptr;
  };
  const bool complete =
      tuple != nullptr &&
      std::apply([&](const auto&... value) { return (add(value) && ...); }, values);
  return complete ? tuple.release() : nullptr;
}

// Puts the arguments of a call into the order of the parameters, or sets a TypeError and returns
// false.
inline bool in_order(const Function& function, PyObject* const* given, size_t positional,
                     PyObject* keywords, PyObject** ordered) {
  const char* name = function.name.c_str();
  const std::vector<const char*>& parameters = function.parameters;
  if (positional > parameters.size()) {
    PyErr_Format(PyExc_TypeError, "%s() takes %zu arguments, but %zu were given", name,
                 parameters.size(), positional);
    return false;
  }
  std::copy_n(given, positional, ordered);
  const Py_ssize_t named = keywords != nullptr ? PyTuple_GET_SIZE(keywords) : 0;
  for (Py_ssize_t i = 0; i < named; ++i) {
    PyObject* keyword = PyTuple_GET_ITEM(keywords, i);
    size_t place = 0;
    while (place < parameters.size() &&
           PyUnicode_CompareWithASCIIString(keyword, parameters[place]) != 0) {
      ++place;
    }
    if (place == parameters.size()) {
      PyErr_Format(PyExc_TypeError, "%s() has no argument '%U'", name, keyword);
      return false;
    }
    if (ordered[place] != nullptr) {
      PyErr_Format(PyExc_TypeError, "%s() got two values for argument '%U'", name, keyword);
      return false;
    }
    ordered[place] = given[positional + i];
  }
  for (size_t place = 0; place < parameters.size(); ++place) {
    if (ordered[place] == nullptr) {
      PyErr_Format(PyExc_TypeError, "%s() is missing argument '%s'", name, parameters[place]);
      return false;
    }
  }
  return true;
}

// Calls a C++ function with the arguments that CPython passes for METH_FASTCALL | METH_KEYWORDS.
template <class Result, class... Args>
PyObject* call(Result (*function)(Args...), const Function& self, PyObject* const* given,
               size_t positional, PyObject* keywords) {
  std::array<PyObject*, sizeof...(Args)> ordered{};
  if (!in_order(self, given, positional, keywords, ordered.data())) return nullptr;
  std::tuple<std::decay_t<Args>...> values;
  size_t place = 0;
  const auto convert = [&](auto& value) {
    const Argument argument{self, self.parameters[place], ordered[place]};
    ++place;
    return from_python(argument, value);
  };
  if (!std::apply([&](auto&... value) { return (convert(value) && ...); }, values)) return nullptr;
  const auto run = [&] {
    const WithoutGil without_gil;
    return std::apply(function, values);
  };
  if constexpr (std::is_void_v<Result>) {
    run();
    Py_RETURN_NONE;
  } else {
    return to_python(run());
  }
}

template <auto function>
PyObject* call_from_python(PyObject* self, PyObject* const* given, Py_ssize_t positional,
                           PyObject* keywords) {
  try {
    const void* owned = PyCapsule_GetPointer(self, nullptr);
    return call(function, *static_cast<const Function*>(owned), given, positional, keywords);
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

template <class Result, class... Args>
constexpr size_t count_parameters(Result (*)(Args...)) {
  return sizeof...(Args);
}

}  // namespace detail

// The Python module that a binding defines.
class Module {
 public:
  explicit Module(PyObject* module) : module_(module) {}

  PyObject* object() const { return module_; }
  void doc(const char* text) { PyModule_SetDocString(module_, text); }

  // Defines `name` in Python as a call of a C++ function, with positional and keyword arguments.
  // The GIL is released during the call. Arguments may be at::Tensor, std::optional<at::Tensor>
  // (None), int64_t, double, bool and std::array of bool (a list or tuple). The result may be
  // at::Tensor (None if undefined), a std::tuple of tensors, or void.
  template <auto function, class... Names>
  void define(const char* name, const char* doc, Names... parameters) {
    static_assert(sizeof...(Names) == detail::count_parameters(function),
                  "define and define_differentiable take a name for each argument of a function");
    add(name, doc, {parameters...}, detail::call_from_python<function>,
        METH_FASTCALL | METH_KEYWORDS);
  }

  // Defines `name` as a function that is written for CPython, with its METH_... flags.
  template <class CFunction>
  void add(const char* name, const char* doc, std::initializer_list<const char*> parameters,
           CFunction* function, int flags) {
    add_method(name, doc, parameters,
               reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)), flags);
  }

 private:
  void add_method(const char* name, const char* doc, std::initializer_list<const char*> parameters,
                  PyCFunction function, int flags) {
    // The signature, for help() and inspect.signature, in the form that CPython parses.
    std::string signature;
    for (const char* parameter : parameters) {
      signature = detail::text({signature, signature.empty() ? "" : ", ", parameter});
    }
    auto* owned = new detail::Function{
        name, detail::text({name, "(", signature, ")\n--\n\n", doc}), parameters, {}};
    owned->method = {owned->name.c_str(), function, flags, owned->doc.c_str()};
    const detail::Object self(PyCapsule_New(owned, nullptr, [](PyObject* capsule) {
      delete static_cast<detail::Function*>(PyCapsule_GetPointer(capsule, nullptr));
    }));
    const detail::Object module_name(PyModule_GetNameObject(module_));
    const detail::Object method(PyCFunction_NewEx(&owned->method, self.get(), module_name.get()));
    PyModule_AddObjectRef(module_, owned->name.c_str(), method.get());
  }

  PyObject* module_;
};

namespace detail {

// Fills a new Python module: CPython's second step of an import. Returns -1 after an error.
template <void (*define_functions)(Module&)>
int execute_module(PyObject* object) {
  try {
    Module module(object);
    define_functions(module);
  } catch (...) {
    set_python_error();
  }
  return PyErr_Occurred() == nullptr ? 0 : -1;
}

// Describes the Python module: CPython's first step of an import.
template <void (*define_functions)(Module&)>
PyObject* describe_module(const char* name) {
  static PyModuleDef_Slot slots[] = {
      {Py_mod_exec, reinterpret_cast<void*>(execute_module<define_functions>)}, {0, nullptr}};
  static PyModuleDef definition{};
  definition.m_base = PyModuleDef_HEAD_INIT;
  definition.m_name = name;
  definition.m_slots = slots;
  return PyModuleDef_Init(&definition);
}

}  // namespace detail
}  // namespace bindings

#define BINDINGS_JOINED(a, b) a##b
#define BINDINGS_INIT_FUNCTION(name) BINDINGS_JOINED(PyInit_, name)  // expands the macro `name`
#define BINDINGS_TEXT_OF(name) #name
#define BINDINGS_TEXT(name) BINDINGS_TEXT_OF(name)

// PYTHON_MODULE(module) { ... } is the body of a function that fills the Python module on import.
// TORCH_EXTENSION_NAME is the module's name, a macro in the command that compiles the binding.
#define PYTHON_MODULE(module)                                     \
  static void define_functions(bindings::Module& module);         \
  PyMODINIT_FUNC BINDINGS_INIT_FUNCTION(TORCH_EXTENSION_NAME)() { \
    return bindings::detail::describe_module<define_functions>(   \
        BINDINGS_TEXT(TORCH_EXTENSION_NAME));                     \
  }                                                               \
  static void define_functions(bindings::Module& module)
