// Autograd's node for all ops, which keeps what an op's gradient needs and calls the gradient; and
// the kernels of all ops for PyTorch's dispatcher, which compiled graphs call.
//
// This is the only file that includes the headers of autograd and of the dispatcher. It is compiled
// once and shared by all ops, which reach it through the Recorder of
// bindings/shared/differentiable.h.
#define AT_PER_OPERATOR_HEADERS  // without it ATen/Functions.h takes 1.7 s
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "bindings/shared/differentiable.h"

using namespace bindings;
using bindings::detail::Object;
using bindings::detail::Recorded;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

namespace {

class WithGil {
 public:
  WithGil() : state_(PyGILState_Ensure()) {}
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  PyGILState_STATE state_;
};

// Throws the current Python error, so that the engine can raise it from backward().
//
// PyTorch's header for its own such exception includes pybind11, which takes 4 s to compile. Its
// interpreter object throws the error of a function that it calls (read for 2.11 to 2.14).
[[noreturn]] void throw_python_error() {
  thread_local PyObject *type, *value, *traceback;
  static PyMethodDef raise{"raise",
                           [](PyObject*, PyObject*) -> PyObject* {
                             PyErr_Restore(type, value, traceback);
                             return nullptr;
                           },
                           METH_O, nullptr};
  PyErr_Fetch(&type, &value, &traceback);
  const Object function(PyCFunction_New(&raise, nullptr));
  (*c10::impl::getGlobalPyInterpreter())->reportErrorCallback(function.get(), {});
  std::abort();  // not reached
}

Object checked(PyObject* object) {
  if (object == nullptr) throw_python_error();
  return Object(object);
}

template <class Items, class ToPython>
Object python_tuple(const Items& items, const ToPython& convert) {
  Object tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(items.size())));
  for (size_t i = 0; i < items.size(); ++i) {
    PyTuple_SET_ITEM(tuple.get(), i, checked(convert(items[i])).release());
  }
  return tuple;
}

using Needs = c10::SmallVector<bool, 8>;

// Returns whether the gradient needs no graph for its derivative, and no mode or transform is on.
bool is_for_kernels(const variable_list& tensors) {
  const bool records = grad_mode_is_enabled();
  const auto is_ready = [&](const at::Tensor& x) {
    return !x.defined() || (is_plain(x) && !has_tangent(x) && !(records && x.requires_grad()));
  };
  return no_mode_is_active() && std::all_of(tensors.begin(), tensors.end(), is_ready);
}

// A gradient that the formula in Python has returned.
at::Tensor from_formula(const Differentiable& op, PyObject* gradient) {
  if (gradient == Py_None) return {};
  if (!PyObject_TypeCheck(gradient, reinterpret_cast<PyTypeObject*>(THPVariableClass))) {
    PyErr_Format(PyExc_TypeError, "%s: a gradient must be Tensor or None, not %s", op.name.c_str(),
                 Py_TYPE(gradient)->tp_name);
    throw_python_error();
  }
  return reinterpret_cast<TensorObject*>(gradient)->tensor;
}

variable_list by_formula(const Differentiable& op, at::ArrayRef<at::Tensor> tensors, size_t results,
                         const Needs& needs, const Shapes& shapes) {
  const WithGil with_gil;
  const auto grads = python_tuple(tensors.slice(0, results), THPVariable_Wrap);
  const auto saved = python_tuple(tensors.slice(results), THPVariable_Wrap);
  const auto flags = python_tuple(needs, [](bool need) { return PyBool_FromLong(need); });
  const auto sizes = python_tuple(shapes, [](const at::DimVector& shape) {
    return python_tuple(shape, PyLong_FromLongLong).release();
  });
  // A tuple with an item for each argument: see gradients() in bindings/shared/op.py.
  const auto gradients = checked(PyObject_CallFunctionObjArgs(op.formula, grads.get(), saved.get(),
                                                              flags.get(), sizes.get(), nullptr));
  variable_list found(needs.size());
  for (size_t i = 0; i < found.size(); ++i) {
    found[i] = from_formula(op, PyTuple_GET_ITEM(gradients.get(), i));
  }
  return found;
}

// Returns the gradients of the arguments. tensors: those of the results, then the saved tensors.
variable_list gradients_of(const Differentiable& op, const variable_list& tensors, size_t results,
                           const Needs& needs, const Shapes& shapes) {
  if (op.gradient == nullptr || !is_for_kernels(tensors)) {
    return by_formula(op, tensors, results, needs, shapes);
  }
  variable_list gradients(needs.size());
  op.gradient({tensors.data(), needs.data(), shapes}, gradients.data());
  for (size_t i = 0; i < needs.size(); ++i) {
    if (!needs[i]) gradients[i].reset();
  }
  return gradients;
}

// Makes zeros for gradients that are not defined. results: describes the results of the op.
template <class Results>
void add_zeros(const Differentiable& op, variable_list& grads, const Results& results) {
  for (size_t i = 0; i < grads.size(); ++i) {
    if (op.zeros && !grads[i].defined() && !results[i].was_default_constructed()) {
      grads[i] = results[i].zeros_like();
    }
  }
}

class OpNode final : public Node {
 public:
  OpNode(const Differentiable& op, torch::autograd::edge_list&& edges)
      : Node(std::move(edges)), op_(op) {}

  // Keeps what the gradient needs. The results must have their edges already.
  void save(at::ArrayRef<at::Tensor> arguments, at::ArrayRef<at::Tensor> results) {
    saved_.reserve(op_.saved.size());
    for (const size_t position : op_.saved) {
      const bool is_result = position >= arguments.size();
      const at::Tensor& x = is_result ? results[position - arguments.size()] : arguments[position];
      saved_.emplace_back(x, is_result && position - arguments.size() < op_.results);
    }
    if (!op_.shapes) return;
    for (const at::Tensor& x : arguments) {
      shapes_.push_back(x.defined() ? at::DimVector(x.sizes()) : at::DimVector());
    }
  }

  std::string name() const override { return op_.name; }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (SavedVariable& x : saved_) x.reset_data();
  }

  variable_list apply(variable_list&& grads) override {
    const auto is_defined = [](const at::Tensor& x) { return x.defined(); };
    if (std::none_of(grads.begin(), grads.end(), is_defined)) return variable_list(num_outputs());
    const size_t results = grads.size();
    variable_list tensors = std::move(grads);
    add_zeros(op_, tensors, input_metadata_);
    append_saved(tensors);
    return gradients_of(op_, tensors, results, needs(), shapes_);
  }

  // Compiled autograd compiles again if one of these has changed.
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override {
    args.collect(reinterpret_cast<uint64_t>(&op_));
    for (const SavedVariable& x : saved_) args.collect(x, true);
    for (const at::DimVector& shape : shapes_) {
      args.collect(static_cast<uint64_t>(shape.size()));
      for (const int64_t size : shape) args.collect(static_cast<uint64_t>(size));
    }
    // add_zeros makes zeros of these sizes; the gradient of a single result is always defined.
    if (!op_.zeros || num_inputs() < 2) return;
    for (const torch::autograd::InputMetadata& result : input_metadata_) {
      if (result.was_default_constructed()) continue;
      for (const c10::SymInt& size : result.shape_as_dim_vector()) {
        args.collect(static_cast<uint64_t>(size.guard_int(__FILE__, __LINE__)));
      }
    }
  }

  // Puts a call of the gradient into the graph of compiled autograd. It is traced later, with fake
  // tensors, for which gradients_of takes the formula.
  variable_list apply_with_saved(const variable_list& grads,
                                 torch::dynamo::autograd::SwapSavedVariables& saved) override {
    namespace dynamo = torch::dynamo::autograd;
    for (SavedVariable& x : saved_) saved.before(x);
    variable_list unpacked;
    append_saved(unpacked);
    const auto& python = dynamo::getPyCompilerInterface();
    const auto traced = [&op = op_, needs = needs(), shapes = shapes_,
                         results = std::vector<torch::autograd::InputMetadata>(
                             input_metadata_.begin(), input_metadata_.end())](
                            const variable_list& grads, const std::vector<c10::IValue>& packed) {
      variable_list tensors = grads;
      add_zeros(op, tensors, results);
      for (const at::Tensor& x : packed[0].toTensorVector()) tensors.push_back(x);
      return gradients_of(op, tensors, grads.size(), needs, shapes);
    };
    const auto function =
        python->bind_function(saved.get_py_compiler(), op_.name, traced,
                              {c10::ListType::ofTensors()}, /*is_custom_function=*/true,
                              /*is_traceable=*/true);
    auto gradients = python->call_function(
        saved.get_py_compiler(), "apply_functional", function, grads, {c10::IValue(unpacked)},
        dynamo::IValuePacker<std::vector<std::optional<torch::autograd::InputMetadata>>>::pack(
            dynamo::get_input_metadata(next_edges())));
    for (SavedVariable& x : saved_) saved.after(x);
    return gradients;
  }

 private:
  void append_saved(variable_list& tensors) {
    const std::lock_guard<std::mutex> lock(mutex_);
    tensors.reserve(tensors.size() + saved_.size());
    for (const SavedVariable& x : saved_) tensors.push_back(x.unpack(getptr()));
  }

  Needs needs() const {
    Needs needs(num_outputs());
    for (size_t i = 0; i < needs.size(); ++i) needs[i] = task_should_compute_output(i);
    return needs;
  }

  const Differentiable& op_;
  std::vector<SavedVariable> saved_;
  Shapes shapes_;
};

// Returns an owner of a new node: PyTorch's intrusive_ptr (2.13 and later) or a shared_ptr (2.11).
template <class T, class... Arguments>
auto make_node(const std::shared_ptr<T>* /*of_an_edge*/, Arguments&&... arguments) {
  return std::shared_ptr<OpNode>(new OpNode(std::forward<Arguments>(arguments)...),
                                 [](T* node) { deleteNode(node); });  // frees long graphs in a loop
}

template <class T, class... Arguments>
auto make_node(const c10::intrusive_ptr<T>* /*of_an_edge*/, Arguments&&... arguments) {
  return c10::make_intrusive<OpNode>(std::forward<Arguments>(arguments)...);
}

using NodePointer = decltype(torch::autograd::Edge::function);

bool is_differentiable(const at::Tensor& x) {
  return x.defined() && (x.is_floating_point() || x.is_complex());
}

// A node whose result is its argument would become a part of the argument's own graph.
void check_is_new(const Differentiable& op, const at::Tensor& result,
                  at::ArrayRef<at::Tensor> arguments) {
  for (const at::Tensor& x : arguments) {
    TORCH_CHECK(!x.defined() || !result.is_same(x), op.name,
                ": the op has returned one of its arguments; to have a gradient, it must return a "
                "new tensor, such as x.clone()");
  }
}

void record(const Differentiable& op, at::ArrayRef<at::Tensor> arguments,
            at::ArrayRef<at::Tensor> results) {
  torch::autograd::edge_list edges;
  edges.reserve(arguments.size());
  for (const at::Tensor& x : arguments) {
    edges.push_back(x.defined() ? torch::autograd::impl::gradient_edge(x)
                                : torch::autograd::Edge());
  }
  const auto node = make_node(static_cast<NodePointer*>(nullptr), op, std::move(edges));
  for (const at::Tensor& y : results.slice(0, op.results)) {
    if (is_differentiable(y)) {
      check_is_new(op, y, arguments);
      torch::autograd::impl::set_gradient_edge(y, {node, node->add_input_metadata(y)});
    } else {
      node->add_input_metadata(Node::undefined_input());
    }
  }
  node->save(arguments, results);
}

// An op in PyTorch's dispatcher. Its function is that of the newest build: graphs that were
// compiled before an edit call the new code. It is never freed, because graphs call it.
struct Registered {
  std::atomic<const Recorded*> current;
  std::vector<c10::RegistrationHandleRAII> handles;
};

using Stack = torch::jit::Stack;

using Flags = c10::SmallVector<bool, 8>;

// flags: gets the bools of a list.
Value value_of(const c10::IValue& item, Flags& flags) {
  Value value;
  if (item.isTensor()) {
    value.tensor = &item.toTensor();
  } else if (item.isBool()) {
    value.integer = item.toBool();
  } else if (item.isInt()) {
    value.integer = item.toInt();
    value.number = static_cast<double>(value.integer);
  } else if (item.isDouble()) {
    value.number = item.toDouble();
  } else if (item.isBoolList()) {
    for (const bool flag : item.toBoolList()) flags.push_back(flag);
    value.flags = flags.data();
    value.flag_count = flags.size();
  }
  return value;
}

using Results = c10::SmallVector<at::Tensor, 4>;

// Calls the function of an op with the arguments on the stack.
Results call(const Differentiable& op, at::ArrayRef<c10::IValue> arguments) {
  c10::SmallVector<Value, 8> values;
  c10::SmallVector<Flags, 8> flags(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    values.push_back(value_of(arguments[i], flags[i]));
  }
  Results results(op.all_results);
  op.call(values.data(), results.data());
  return results;
}

// Replaces the arguments on the stack by the results.
void return_results(Stack& stack, size_t arguments, Results&& results) {
  torch::jit::drop(stack, arguments);
  for (at::Tensor& result : results) stack.emplace_back(std::move(result));
}

at::ArrayRef<c10::IValue> arguments_of(const c10::OperatorHandle& handle, const Stack& stack) {
  return torch::jit::last(stack, handle.schema().arguments().size());
}

// The kernel for the CPU and for CUDA.
class Kernel final : public c10::OperatorKernel {
 public:
  explicit Kernel(const Registered& op) : op_(op) {}

  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet /*keys*/, Stack* stack) {
    const auto arguments = arguments_of(handle, *stack);
    return_results(*stack, arguments.size(), call(*op_.current.load()->op, arguments));
  }

 private:
  const Registered& op_;
};

// The kernel of autograd, which records a call.
class AutogradKernel final : public c10::OperatorKernel {
 public:
  explicit AutogradKernel(const Registered& op) : op_(op) {}

  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet /*keys*/, Stack* stack) {
    const Differentiable& op = *op_.current.load()->op;
    const auto arguments = arguments_of(handle, *stack);
    const auto is_ready = [](const c10::IValue& argument) {
      return !argument.isTensor() || !argument.toTensor().defined() ||
             (is_plain(argument.toTensor()) && !has_tangent(argument.toTensor()));
    };
    if (!no_mode_is_active() || !std::all_of(arguments.begin(), arguments.end(), is_ready)) {
      // The kernel in Python is registered for all of autograd's keys, and this one for two.
      handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::AutogradOther), stack);
      return;
    }
    const auto requires_grad = [](const c10::IValue& argument) {
      return argument.isTensor() && argument.toTensor().defined() &&
             argument.toTensor().requires_grad();
    };
    if (!autograd_is_active() || std::none_of(arguments.begin(), arguments.end(), requires_grad)) {
      return_results(*stack, arguments.size(), call(op, arguments));
      return;
    }
    c10::SmallVector<at::Tensor, 8> tensors;
    for (const c10::IValue& argument : arguments) {
      tensors.push_back(argument.isTensor() ? argument.toTensor() : at::Tensor());
    }
    Results results = [&] {
      const c10::impl::ExcludeDispatchKeyGuard below_autograd(
          c10::autograd_dispatch_keyset | c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView));
      return call(op, arguments);
    }();
    record(op, tensors, results);
    return_results(*stack, arguments.size(), std::move(results));
  }

 private:
  const Registered& op_;
};

// The op of each name; the GIL guards it.
std::map<std::string, Registered*>& registered_ops() {
  static auto& ops = *new std::map<std::string, Registered*>();
  return ops;
}

// Drops the warning that the kernel in Python is overridden.
struct Silent final : c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

template <class T>
void register_kernel(Registered& op, const char* name, c10::DispatchKey key) {
  Silent silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  auto kernel = c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<T>(op));
  op.handles.push_back(c10::Dispatcher::singleton().registerImpl(
      {name, ""}, key, std::move(kernel), std::nullopt, nullptr, "bindings/autograd.cpp"));
}

// Has the dispatcher call the function of a callable that make_recorded has made.
PyObject* use_in_dispatcher(PyObject* /*self*/, PyObject* arguments) {
  try {
    const char* name = nullptr;
    PyObject* callable = nullptr;
    if (!PyArg_ParseTuple(arguments, "sO!", &name, &PyCFunction_Type, &callable)) return nullptr;
    const auto* recorded =
        static_cast<const Recorded*>(PyCapsule_GetPointer(PyCFunction_GET_SELF(callable), nullptr));
    if (recorded == nullptr) return nullptr;
    Registered*& op = registered_ops()[name];
    if (op != nullptr) {
      op->current = recorded;
      Py_RETURN_NONE;
    }
    op = new Registered{recorded, {}};
    register_kernel<AutogradKernel>(*op, name, c10::DispatchKey::AutogradCPU);
    register_kernel<AutogradKernel>(*op, name, c10::DispatchKey::AutogradCUDA);
    register_kernel<Kernel>(*op, name, c10::DispatchKey::CPU);
    register_kernel<Kernel>(*op, name, c10::DispatchKey::CUDA);
    Py_RETURN_NONE;
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

}  // namespace

PYTHON_MODULE(module) {
  module.doc("Autograd for the ops, compiled; see bindings/autograd.py.");
  module.add("use_in_dispatcher",
             "Has PyTorch's dispatcher call the function of a callable of differentiable_...().",
             {"name", "callable"}, use_in_dispatcher, METH_VARARGS);
  PyObject* recorder = PyCapsule_New(reinterpret_cast<void*>(record), kRecorder, nullptr);
  if (recorder != nullptr) PyModule_AddObject(module.object(), "recorder", recorder);
}
