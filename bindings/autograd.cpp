// Autograd's node for all ops: it keeps what an op's gradient needs, and calls the gradient.
//
// This is the only file that includes autograd's headers. It is compiled once and shared by all
// ops, which reach it through the Recorder of bindings/shared/differentiable.h.
#define AT_PER_OPERATOR_HEADERS  // without it ATen/Functions.h takes 1.7 s
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <algorithm>

#include "bindings/shared/differentiable.h"

using namespace bindings;
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
[[noreturn]] void throw_python_error() {
  python_error error;
  error.persist();
  throw std::move(error);
}

detail::Object checked(PyObject* object) {
  if (object == nullptr) throw_python_error();
  return detail::Object(object);
}

template <class Items, class ToPython>
detail::Object python_tuple(const Items& items, const ToPython& convert) {
  detail::Object tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(items.size())));
  for (size_t i = 0; i < items.size(); ++i) {
    PyTuple_SET_ITEM(tuple.get(), i, checked(convert(items[i])).release());
  }
  return tuple;
}

class OpNode final : public Node {
 public:
  using Needs = c10::SmallVector<bool, 8>;

  OpNode(const Differentiable& op, torch::autograd::edge_list&& edges)
      : Node(std::move(edges)), op_(op) {}

  // Keeps what the gradient needs. The results must have their edges already.
  void save(at::ArrayRef<at::Tensor> arguments, at::ArrayRef<at::Tensor> results) {
    saved_.reserve(op_.saved.size());
    for (const Py_ssize_t position : op_.saved) {
      const size_t i = static_cast<size_t>(position);
      const bool is_result = i >= arguments.size();
      const at::Tensor& x = is_result ? results[i - arguments.size()] : arguments[i];
      const bool is_output = is_result && i - arguments.size() < op_.results;
      saved_.emplace_back(x, is_output);
    }
    if (op_.shapes) {
      for (const at::Tensor& x : arguments) {
        shapes_.push_back(x.defined() ? at::DimVector(x.sizes()) : at::DimVector());
      }
    }
  }

  std::string name() const override { return op_.name; }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (SavedVariable& x : saved_) x.reset_data();
  }

  variable_list apply(variable_list&& grads) override {
    const auto defined = [](const at::Tensor& x) { return x.defined(); };
    if (std::none_of(grads.begin(), grads.end(), defined)) return variable_list(num_outputs());
    for (size_t i = 0; i < grads.size(); ++i) {
      const torch::autograd::InputMetadata& result = input_metadata(i);
      if (op_.zeros && !grads[i].defined() && !result.was_default_constructed()) {
        grads[i] = result.zeros_like();
      }
    }
    const size_t results = grads.size();
    variable_list tensors = std::move(grads);
    unpack(tensors);
    Needs needs(num_outputs());
    for (size_t i = 0; i < needs.size(); ++i) needs[i] = task_should_compute_output(i);
    return op_.gradient != nullptr && is_for_kernels(tensors) ? by_kernels(tensors, needs)
                                                              : by_formula(tensors, results, needs);
  }

  // Compiled autograd traces apply() with tensors in place of the saved ones. They are not plain,
  // so the formula is traced.
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override {
    args.collect(op_.name);
    args.collect(reinterpret_cast<uint64_t>(&op_));
    for (const SavedVariable& x : saved_) args.collect(x, true);
    for (const at::DimVector& shape : shapes_) {
      args.collect(static_cast<uint64_t>(shape.size()));
      for (const int64_t size : shape) args.collect(static_cast<uint64_t>(size));
    }
  }

  variable_list apply_with_saved(const variable_list& grads,
                                 torch::dynamo::autograd::SwapSavedVariables& saved) override {
    for (SavedVariable& x : saved_) saved.before(x);
    variable_list gradients = apply(variable_list(grads));
    for (SavedVariable& x : saved_) saved.after(x);
    return gradients;
  }

 private:
  void unpack(variable_list& tensors) {
    const std::lock_guard<std::mutex> lock(mutex_);
    tensors.reserve(tensors.size() + saved_.size());
    for (const SavedVariable& x : saved_) tensors.push_back(x.unpack(getptr()));
  }

  // Tells whether no graph of the gradient is wanted, and no mode or transform is active.
  static bool is_for_kernels(const variable_list& tensors) {
    const bool records = grad_mode_is_enabled();
    return no_mode_is_active() &&
           std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& x) {
             return !x.defined() ||
                    (is_plain(x) && !has_tangent(x) && !(records && x.requires_grad()));
           });
  }

  variable_list by_kernels(const variable_list& tensors, const Needs& needs) const {
    variable_list gradients(needs.size());
    op_.gradient({tensors.data(), needs.data(), shapes_}, gradients.data());
    for (size_t i = 0; i < needs.size(); ++i) {
      if (!needs[i]) gradients[i].reset();
    }
    return gradients;
  }

  variable_list by_formula(const variable_list& tensors, size_t results, const Needs& needs) const {
    const WithGil with_gil;
    const at::ArrayRef<at::Tensor> all(tensors);
    const auto grads = python_tuple(all.slice(0, results), THPVariable_Wrap);
    const auto saved = python_tuple(all.slice(results), THPVariable_Wrap);
    const auto flags = python_tuple(needs, [](bool need) { return PyBool_FromLong(need); });
    const auto shapes = python_tuple(shapes_, [](const at::DimVector& shape) {
      return python_tuple(shape, PyLong_FromLongLong).release();
    });
    const detail::Object gradients = checked(PyObject_CallFunctionObjArgs(
        op_.formula, grads.get(), saved.get(), flags.get(), shapes.get(), nullptr));
    variable_list found(needs.size());
    const detail::Object items =
        checked(PySequence_Fast(gradients.get(), "the gradients are not a tuple"));
    if (PySequence_Fast_GET_SIZE(items.get()) != static_cast<Py_ssize_t>(found.size())) {
      PyErr_Format(PyExc_RuntimeError, "%s: %zd gradients for %zu arguments", op_.name.c_str(),
                   PySequence_Fast_GET_SIZE(items.get()), found.size());
      throw_python_error();
    }
    for (size_t i = 0; i < found.size(); ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(items.get(), i);
      if (item == Py_None) continue;
      if (!PyObject_TypeCheck(item, reinterpret_cast<PyTypeObject*>(THPVariableClass))) {
        PyErr_Format(PyExc_TypeError, "%s: a gradient must be Tensor or None, not %s",
                     op_.name.c_str(), Py_TYPE(item)->tp_name);
        throw_python_error();
      }
      found[i] = reinterpret_cast<TensorObject*>(item)->tensor;
    }
    return found;
  }

  const Differentiable& op_;
  std::vector<SavedVariable> saved_;
  Shapes shapes_;
};

// Returns an owner of a new node. A node has either PyTorch's intrusive_ptr (2.13) or a shared_ptr.
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
    if (y.defined()) {
      torch::autograd::impl::set_gradient_edge(y, {node, node->add_input_metadata(y)});
    } else {
      node->add_input_metadata(Node::undefined_input());
    }
  }
  node->save(arguments, results);
}

}  // namespace

// PYTHON_MODULE has no capsules, and this module has no functions.
void define_module(PyObject* module) {
  PyObject* recorder = PyCapsule_New(reinterpret_cast<void*>(record), kRecorder, nullptr);
  if (recorder != nullptr) PyModule_AddObject(module, "recorder", recorder);
  PyModule_SetDocString(module, "Autograd for the ops, compiled; see bindings/autograd.py.");
}
