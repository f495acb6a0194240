// Defines an op's function for the Python wrapper: one C++ call that checks the arguments, runs the
// kernel and has autograd record it.
//
// Autograd's headers take 4 s to compile, so a binding includes none of them. bindings/autograd.cpp
// does; it is compiled once for all ops, and the structs below are all that the two share.
#pragma once

#include "bindings/shared/module.h"
#include "bindings/shared/plain.h"
#include "bindings/shared/pytorch.h"

namespace bindings {

// The shapes of an op's arguments: a type of parameter for gradients.
using Shapes = std::vector<at::DimVector>;

// One call of a gradient.
struct GradientCall {
  const at::Tensor* tensors;  // the gradients of the results, then the saved tensors
  const bool* needs;          // for each argument, whether its gradient is needed
  const Shapes& shapes;       // of the arguments; empty unless Differentiable::shapes is set
};

// One argument of a call by PyTorch's dispatcher. The member for the parameter's type is set.
struct Value {
  const at::Tensor* tensor = nullptr;  // nullptr for None
  int64_t integer = 0;                 // also a bool's
  double number = 0;
  const bool* flags = nullptr;
  size_t flag_count = 0;
};

// Describes an op's function to autograd and to the dispatcher. It is never freed: the graph refers
// to it.
struct Differentiable {
  // Calls the function. results: as many tensors as it returns.
  void (*call)(const Value* arguments, at::Tensor* results);
  size_t all_results;  // how many tensors it returns
  // Computes the gradients of the arguments. nullptr: the formula in Python always does.
  void (*gradient)(const GradientCall& call, at::Tensor* gradients);
  std::string name;           // the graph's node has this name
  PyObject* formula;          // (grads, saved, needs, shapes) -> gradients, in Python
  std::vector<size_t> saved;  // positions in the arguments, followed by the results
  size_t results;             // how many results have a gradient; they are the first ones
  bool zeros;                 // whether a gradient that is not defined stands for zeros
  bool shapes;                // whether the gradient needs the arguments' shapes
  bool casts;                 // whether autocast changes the dtypes of arguments
};

// The function of bindings/autograd.cpp; its address is in a capsule of this name. A change of a
// struct above must change the name: the two may be compiled at different times.
constexpr const char* kRecorder = "bindings.Recorder.2";
using Recorder = void (*)(const Differentiable& op, at::ArrayRef<at::Tensor> arguments,
                          at::ArrayRef<at::Tensor> results);

namespace detail {

// A callable of Python: an op's function and its description for autograd.
struct Recorded {
  const Differentiable* op;
  Recorder record;  // nullptr while bindings/autograd.cpp is being compiled
  size_t returned;  // how many results a call returns; they are the first ones
  PyMethodDef method;
};

// Returns whether value is exactly a torch.Tensor or nn.Parameter; a subclass may have
// __torch_function__.
inline bool is_exactly_tensor(PyObject* value) {
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(value));
  return type == THPVariableClass || type == ParameterClass;
}

// plain_from_python sets `to` to an argument's value. It returns false for a tensor that PyTorch's
// dispatcher has to handle first, and for a value of another type.

inline bool plain_from_python(PyObject* value, at::Tensor& to) {
  if (!is_exactly_tensor(value)) return false;
  to = reinterpret_cast<TensorObject*>(value)->tensor;
  return is_plain(to) && !has_tangent(to);
}

inline bool plain_from_python(PyObject* value, std::optional<at::Tensor>& to) {
  return value == Py_None || plain_from_python(value, to.emplace());
}

template <class T>
bool plain_from_python(PyObject* value, T& to) {
  static const Function unnamed{};  // for an error message that nobody sees
  if (from_python(Argument{unnamed, "", value}, to)) return true;
  PyErr_Clear();
  return false;
}

// The tensor of an argument or result; an undefined tensor if it is none.
inline const at::Tensor& as_tensor(const at::Tensor& x) { return x; }
inline at::Tensor as_tensor(const std::optional<at::Tensor>& x) { return x.value_or(at::Tensor()); }
template <class T>
at::Tensor as_tensor(const T& /*no_tensor*/) {
  return {};
}

inline bool requires_grad(const at::Tensor& x) { return x.requires_grad(); }
inline bool requires_grad(const std::optional<at::Tensor>& x) { return x && x->requires_grad(); }
template <class T>
bool requires_grad(const T& /*no_tensor*/) {
  return false;
}

template <class... T>
std::array<at::Tensor, sizeof...(T)> tensors_of(const std::tuple<T...>& values) {
  return std::apply(
      [](const auto&... value) {
        return std::array<at::Tensor, sizeof...(T)>{as_tensor(value)...};
      },
      values);
}

inline std::array<at::Tensor, 1> tensors_of(const at::Tensor& value) { return {value}; }

// Makes Python objects of the first results of a call. Others, which only the gradient needs, are
// freed with the graph; without a Python object that takes no GIL.
inline PyObject* first_to_python(const at::Tensor& value, size_t /*count*/) {
  return to_python(value);
}

template <class... T>
PyObject* first_to_python(const std::tuple<T...>& values, size_t count) {
  return to_python(values, count);
}

// Runs a function without the GIL and below autograd, which records the call afterwards.
template <class Result, class... Args>
Result run_unrecorded(Result (*function)(Args...),
                      const std::tuple<std::decay_t<Args>...>& values) {
  const WithoutGil without_gil;
  const c10::impl::ExcludeDispatchKeyGuard below_autograd(
      c10::autograd_dispatch_keyset | c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView));
  return std::apply(function, values);
}

template <class Result, class... Args>
PyObject* try_call(Result (*function)(Args...), const Recorded& self, PyObject* const* values,
                   Py_ssize_t count) {
  if (count != sizeof...(Args) || !no_mode_is_active() ||
      (self.op->casts && autocast_is_active())) {
    return Py_NewRef(Py_NotImplemented);
  }
  std::tuple<std::decay_t<Args>...> arguments;
  const auto convert = [&](auto& argument) { return plain_from_python(*values++, argument); };
  if (!std::apply([&](auto&... argument) { return (convert(argument) && ...); }, arguments)) {
    return Py_NewRef(Py_NotImplemented);
  }
  const auto any_requires_grad = [](const auto&... argument) {
    return (requires_grad(argument) || ...);
  };
  if (!autograd_is_active() || !std::apply(any_requires_grad, arguments)) {
    const Result result = [&] {
      const WithoutGil without_gil;
      return std::apply(function, arguments);
    }();
    return first_to_python(result, self.returned);
  }
  if (self.record == nullptr) Py_RETURN_NONE;
  const Result result = run_unrecorded(function, arguments);
  self.record(*self.op, tensors_of(arguments), tensors_of(result));
  return first_to_python(result, self.returned);
}

template <auto function>
PyObject* try_call_from_python(PyObject* self, PyObject* const* values, Py_ssize_t count) {
  try {
    const void* owned = PyCapsule_GetPointer(self, nullptr);
    return try_call(function, *static_cast<const Recorded*>(owned), values, count);
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

// from_value sets `to` to the value of an argument. The dispatcher has checked the types.

inline void from_value(const Value& value, at::Tensor& to) { to = *value.tensor; }

inline void from_value(const Value& value, std::optional<at::Tensor>& to) {
  if (value.tensor != nullptr && value.tensor->defined()) to = *value.tensor;
}

inline void from_value(const Value& value, int64_t& to) { to = value.integer; }
inline void from_value(const Value& value, bool& to) { to = value.integer != 0; }
inline void from_value(const Value& value, double& to) { to = value.number; }

template <size_t n>
void from_value(const Value& value, std::array<bool, n>& to) {
  TORCH_CHECK(value.flag_count == n, "expected ", n, " bools, not ", value.flag_count);
  std::copy_n(value.flags, n, to.begin());
}

inline void copy_tensors(const at::Tensor& tensor, at::Tensor* to) { *to = tensor; }

template <class... T>
void copy_tensors(const std::tuple<T...>& tensors, at::Tensor* to) {
  std::apply([&](const auto&... tensor) { ((*to++ = tensor), ...); }, tensors);
}

template <class T>
constexpr size_t count_of(const T* /*one tensor*/) {
  return 1;
}
template <class... T>
constexpr size_t count_of(const std::tuple<T...>* /*tensors*/) {
  return sizeof...(T);
}

// Calls a function for the dispatcher.
template <class Result, class... Args>
void call_with_values(Result (*function)(Args...), const Value* values, at::Tensor* results) {
  std::tuple<std::decay_t<Args>...> arguments;
  std::apply([&](auto&... argument) { (from_value(*values++, argument), ...); }, arguments);
  copy_tensors(std::apply(function, arguments), results);
}

template <class Result, class... Args>
constexpr size_t count_results(Result (* /*function*/)(Args...)) {
  return count_of(static_cast<const Result*>(nullptr));
}

// The type of an argument in a schema, as Python prints it.
template <class T>
constexpr const char* schema_type() {
  using Type = std::decay_t<T>;
  if constexpr (std::is_same_v<Type, at::Tensor>) {
    return "Tensor";
  } else if constexpr (std::is_same_v<Type, std::optional<at::Tensor>>) {
    return "Optional[Tensor]";
  } else if constexpr (std::is_same_v<Type, bool>) {
    return "bool";
  } else if constexpr (std::is_same_v<Type, int64_t>) {
    return "int";
  } else if constexpr (std::is_same_v<Type, double>) {
    return "float";
  } else {
    return "List[bool]";
  }
}

template <class Result, class... Args>
std::string schema_types(Result (* /*function*/)(Args...)) {
  std::string types;
  ((types += types.empty() ? "" : ", ", types += schema_type<Args>()), ...);
  return types;
}

// argument_of returns the value of one parameter of a gradient; tensors are taken in their order.

template <class T>
struct Parameter {};

inline const at::Tensor& argument_of(const GradientCall& /*call*/, const at::Tensor*& next,
                                     Parameter<const at::Tensor&> /*type*/) {
  return *next++;
}

inline std::optional<at::Tensor> argument_of(const GradientCall& /*call*/, const at::Tensor*& next,
                                             Parameter<const std::optional<at::Tensor>&> /*type*/) {
  const at::Tensor& x = *next++;
  return x.defined() ? std::optional(x) : std::nullopt;
}

template <size_t n>
std::array<bool, n> argument_of(const GradientCall& call, const at::Tensor*& /*next*/,
                                Parameter<std::array<bool, n>> /*type*/) {
  std::array<bool, n> needs;
  std::copy_n(call.needs, n, needs.begin());
  return needs;
}

inline const Shapes& argument_of(const GradientCall& call, const at::Tensor*& /*next*/,
                                 Parameter<const Shapes&> /*type*/) {
  return call.shapes;
}

template <class T>
constexpr bool is_tensor = std::is_same_v<std::decay_t<T>, at::Tensor> ||
                           std::is_same_v<std::decay_t<T>, std::optional<at::Tensor>>;

template <size_t arguments, class T>
constexpr bool fits_needs(const T* /*parameter*/) {
  return true;
}
template <size_t arguments, size_t n>
constexpr bool fits_needs(const std::array<bool, n>* /*parameter*/) {
  return n == arguments;
}

// Checks a gradient against its function, and returns how many of its parameters are tensors.
template <class Result, class... Args, class Gradients, class... Parameters>
constexpr size_t check_gradient(Result (* /*function*/)(Args...),
                                Gradients (* /*gradient*/)(Parameters...)) {
  constexpr size_t arguments = sizeof...(Args);
  static_assert(count_of(static_cast<Gradients*>(nullptr)) == arguments,
                "a gradient returns a tensor for each argument of its function");
  static_assert((fits_needs<arguments>(static_cast<std::decay_t<Parameters>*>(nullptr)) && ...),
                "std::array<bool, n> has a bool for each argument of the function");
  return (size_t{is_tensor<Parameters>} + ...);
}

// Calls a gradient with arguments of its parameters' types.
template <class Result, class... Args>
void call_gradient(Result (*gradient)(Args...), const GradientCall& call, at::Tensor* gradients) {
  const at::Tensor* next = call.tensors;
  // Braces: the arguments are made in their order.
  const std::tuple<decltype(argument_of(call, next, Parameter<Args>()))...> arguments{
      argument_of(call, next, Parameter<Args>())...};
  copy_tensors(std::apply(gradient, arguments), gradients);
}

template <auto gradient>
constexpr auto gradient_pointer() {
  using Pointer = void (*)(const GradientCall&, at::Tensor*);
  if constexpr (std::is_null_pointer_v<decltype(gradient)>) {
    return Pointer(nullptr);
  } else {
    return Pointer([](const GradientCall& call, at::Tensor* gradients) {
      call_gradient(gradient, call, gradients);
    });
  }
}

// Makes the callable for the wrapper, from (name, formula, saved, results, zeros, shapes, casts,
// returned, the capsule of the Recorder or None).
template <auto function, auto gradient>
PyObject* make_recorded(PyObject* /*self*/, PyObject* arguments) {
  const char* name = nullptr;
  PyObject *formula = nullptr, *saved = nullptr, *capsule = nullptr;
  Py_ssize_t results = 0, returned = 0;
  int zeros = 0, shapes = 0, casts = 0;
  if (!PyArg_ParseTuple(arguments, "sOO!npppnO", &name, &formula, &PyTuple_Type, &saved, &results,
                        &zeros, &shapes, &casts, &returned, &capsule)) {
    return nullptr;
  }
  if constexpr (!std::is_null_pointer_v<decltype(gradient)>) {
    constexpr size_t tensors = check_gradient(function, gradient);
    if (const Py_ssize_t given = results + PyTuple_GET_SIZE(saved);
        given != static_cast<Py_ssize_t>(tensors)) {
      PyErr_Format(PyExc_TypeError,
                   "%s: the C++ gradient has %zu parameters that are tensors, but gets %zd: the "
                   "gradients of %zd results and the %zd tensors of saves",
                   name, tensors, given, results, PyTuple_GET_SIZE(saved));
      return nullptr;
    }
  }
  void* record = nullptr;
  if (capsule != Py_None) {
    record = PyCapsule_GetPointer(capsule, kRecorder);
    if (record == nullptr) return nullptr;
  }
  std::vector<size_t> positions(PyTuple_GET_SIZE(saved));
  for (size_t i = 0; i < positions.size(); ++i) {
    positions[i] = PyLong_AsSize_t(PyTuple_GET_ITEM(saved, i));
  }
  if (PyErr_Occurred() != nullptr) return nullptr;
  auto* op = new Differentiable{
      [](const Value* values, at::Tensor* found) { call_with_values(function, values, found); },
      count_results(function),
      gradient_pointer<gradient>(),
      name,
      Py_NewRef(formula),
      std::move(positions),
      static_cast<size_t>(results),
      zeros != 0,
      shapes != 0,
      casts != 0};
  PyObject* (*call)(PyObject*, PyObject* const*, Py_ssize_t) = try_call_from_python<function>;
  auto* recorded =
      new Recorded{op, reinterpret_cast<Recorder>(record), static_cast<size_t>(returned), {}};
  recorded->method = {recorded->op->name.c_str(),
                      reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call)),
                      METH_FASTCALL, nullptr};
  const Object owner(PyCapsule_New(recorded, nullptr, nullptr));
  return owner == nullptr ? nullptr : PyCFunction_NewEx(&recorded->method, owner.get(), nullptr);
}

}  // namespace detail

// Defines `name`, as Module::define does, for a function with at least one tensor among its
// arguments; types_`name`, which the wrapper compares with its schema; and differentiable_`name`,
// with which bindings/shared/differentiable.py makes the callable for calls of the op. That
// callable returns the result, or the first ones; or None if autograd has to record the call and
// bindings/autograd.cpp is not compiled yet; or NotImplemented if PyTorch's dispatcher has to
// decide or the arguments are wrong.
//
// gradient: computes the gradients of the function's arguments, in their order: a tensor or a tuple
// of tensors, undefined for a number. Its parameters are the gradients of the results, and then the
// tensors of `saves` in the wrapper, each as const at::Tensor&, or as const
// std::optional<at::Tensor>& if it may be missing (see `results` in the wrapper). More parameters:
// std::array<bool, n>: for each argument, whether its gradient is needed; const Shapes&: the
// arguments' shapes. Autograd sums a gradient over broadcast dimensions and converts its dtype. By
// default the formula in Python computes the gradients.
template <auto function, auto gradient = nullptr, class... Names>
void define_differentiable(Module& module, const char* name, const char* doc, Names... parameters) {
  module.define<function>(name, doc, parameters...);
  PyModule_AddStringConstant(module.object(), detail::text({"types_", name}).c_str(),
                             detail::schema_types(function).c_str());
  module.add(
      detail::text({"differentiable_", name}).c_str(),
      detail::text({"Makes the callable of ", name, " for bindings/shared/differentiable.py."})
          .c_str(),
      {"name", "formula", "saved", "results", "zeros", "shapes", "casts", "returned", "recorder"},
      detail::make_recorded<function, gradient>, METH_VARARGS);
}

}  // namespace bindings
