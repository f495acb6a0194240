#include "kernels/lltm.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/concat_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/select_ops.h>
#include <ATen/ops/slice_ops.h>
#include <ATen/ops/t_ops.h>

#include "bindings/shared/op.h"

using namespace bindings;

namespace {

// A guard under which PyTorch's functions only run their kernels. Autograd and autocast have
// already handled the call of this op.
class KernelsOnly {
  const c10::impl::ExcludeDispatchKeyGuard guard_{
      c10::autograd_dispatch_keyset | c10::autocast_dispatch_keyset |
      c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView)};
};

at::Tensor product(const at::Tensor& a, const at::Tensor& b) { return at::_ops::mm::call(a, b); }

at::Tensor transposed(const at::Tensor& x) { return at::_ops::t::call(x); }

at::Tensor columns(const at::Tensor& x, int64_t begin, int64_t end) {
  return at::_ops::slice_Tensor::call(x, 1, begin, end, 1);
}

at::Tensor joined_columns(const at::Tensor& left, const at::Tensor& right) {
  const std::array<at::Tensor, 2> parts{left, right};
  return at::_ops::concat::call(at::TensorList(parts), 1);
}

at::Tensor converted(const at::Tensor& x, at::ScalarType dtype) {
  return x.scalar_type() == dtype ? x : x.to(dtype);
}

at::Tensor contiguous(const at::Tensor& x, at::ScalarType dtype) {
  return converted(x, dtype).contiguous();
}

template <class T>
T* out_if_any(Type<T> type, const at::Tensor& y) {
  return y.defined() ? out(type, y) : nullptr;
}

// Views of undefined tensors have no data, which stands for zeros.
template <class T>
LltmGradientView<T> view(Type<T> type, const at::Tensor& x) {
  if (!x.defined()) return {};
  return {in(type, x), x.stride(0), x.stride(1)};
}

// Checks the arguments of both directions. The dtype of old_cell may differ from the others, and
// bias may have the shape (1, 3S).
void check(const Op& op, const at::Tensor& input, const at::Tensor& weights, const at::Tensor& bias,
           const at::Tensor& old_h, const at::Tensor& old_cell) {
  op.floating("input", input);
  op.rank("input", input, 2);
  const auto like_input = [&](const char* name, const at::Tensor& x) {
    op.same_device("input", input, name, op.floating(name, x));
    op.same_dtype("input", input, name, x);
  };
  like_input("weights", weights);
  like_input("bias", bias);
  like_input("old_h", old_h);
  op.same_device("input", input, "old_cell", op.floating("old_cell", old_cell));
  op.rank("old_h", old_h, 2);
  const int64_t batch = input.size(0), features = input.size(1), state = old_h.size(1);
  op.shape("old_h", old_h, {batch, state});
  op.shape("old_cell", old_cell, {batch, state});
  op.shape("weights", weights, {3 * state, state + features});
  if (bias.dim() != 2) op.shape("bias", bias, {3 * state});
  if (bias.dim() == 2) op.shape("bias", bias, {1, 3 * state});
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> forward(const at::Tensor& input,
                                                                   const at::Tensor& weights,
                                                                   const at::Tensor& bias,
                                                                   const at::Tensor& old_h,
                                                                   const at::Tensor& old_cell) {
  const Op op("lltm");
  check(op, input, weights, bias, old_h, old_cell);
  const KernelsOnly kernels_only;
  const at::ScalarType dtype = c10::promoteTypes(input.scalar_type(), old_cell.scalar_type());
  const at::Tensor x = joined_columns(old_h, input);
  // PyTorch calls cuBLASLt if the bias has one dimension. For a batch of 16 cuBLAS, which it calls
  // for mm, chooses a kernel that takes 30 us on an H200.
  const at::Tensor b = bias.dim() == 1 ? bias : at::_ops::select_int::call(bias, 0, 0);
  const at::Tensor gates =
      contiguous(at::_ops::addmm::call(b, x, transposed(weights), 1, 1), dtype);
  const at::Tensor cell = contiguous(old_cell, dtype);
  const at::Tensor new_h = op.empty_like(cell), new_cell = op.empty_like(cell);
  op.run(cell, [&](auto where, auto type) {
    lltm(where, out(type, new_h), out(type, new_cell), in(type, gates), in(type, cell),
         cell.size(0), cell.size(1));
  });
  return {new_h, new_cell, x, gates};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> backward(
    const std::optional<at::Tensor>& grad_h, const std::optional<at::Tensor>& grad_cell,
    const at::Tensor& input, const at::Tensor& weights, const at::Tensor& bias,
    const at::Tensor& old_h, const at::Tensor& old_cell, const at::Tensor& new_cell,
    const at::Tensor& x, const at::Tensor& gates, std::array<bool, 5> needs) {
  const Op op("lltm_backward");
  check(op, input, weights, bias, old_h, old_cell);
  const KernelsOnly kernels_only;
  const int64_t batch = old_h.size(0), state = old_h.size(1);
  op.same_device("input", input, "x", op.floating("x", x));
  op.same_dtype("input", input, "x", x);
  op.shape("x", x, {batch, weights.size(1)});
  const auto prepared = [&](const char* name, const at::Tensor& tensor, at::IntArrayRef shape) {
    op.same_device("input", input, name, op.floating(name, tensor));
    op.shape(name, tensor, shape);
    return converted(tensor, gates.scalar_type());
  };
  const auto prepared_if_any = [&](const char* name, const std::optional<at::Tensor>& tensor) {
    return tensor ? prepared(name, *tensor, {batch, state}) : at::Tensor();
  };
  const at::Tensor g = prepared("gates", gates, {batch, 3 * state}).contiguous();
  const at::Tensor cell = prepared("new_cell", new_cell, {batch, state}).contiguous();
  const at::Tensor gh = prepared_if_any("grad_h", grad_h);
  const at::Tensor gc = prepared_if_any("grad_cell", grad_cell);

  const auto [input_needed, weights_needed, bias_needed, old_h_needed, cell_needed] = needs;
  const bool gates_needed = input_needed || weights_needed || old_h_needed;
  at::Tensor d_gates = gates_needed ? op.empty_like(g) : at::Tensor();
  const at::Tensor d_bias = bias_needed ? op.empty(bias.sizes(), g) : at::Tensor();
  const at::Tensor d_cell = cell_needed ? op.empty_like(cell) : at::Tensor();
  const int64_t rows = lltm_sums(batch);
  const at::Tensor sums = op.scratch(bias_needed && rows > 1 ? rows * 3 * state : 0, g);
  op.run(g, [&](auto where, auto type) {
    lltm_backward(where, out_if_any(type, d_gates), out_if_any(type, d_bias),
                  out_if_any(type, d_cell), scratch(type, sums), view(type, gh), view(type, gc),
                  in(type, g), in(type, cell), batch, state);
  });

  if (gates_needed) d_gates = contiguous(d_gates, x.scalar_type());
  at::Tensor d_input, d_weights, d_old_h;
  if (weights_needed) d_weights = product(transposed(d_gates), x);
  if (old_h_needed) d_old_h = product(d_gates, columns(weights, 0, state));
  if (input_needed) d_input = product(d_gates, columns(weights, state, weights.size(1)));
  return {d_input, d_weights, d_bias, d_old_h, d_cell};
}

PYTHON_MODULE(module) {
  module.doc("lltm, compiled; bindings/lltm.py has the function with a gradient.");
  define_differentiable<forward, backward>(
      module, "forward",
      "(new_h, new_cell, x, gates) of one step, without a gradient: the new state, and two tensors "
      "that the gradient needs, x = [old_h, input] and gates = x @ weights.T + bias.",
      "input", "weights", "bias", "old_h", "old_cell");
  define_differentiable<backward>(
      module, "backward",
      "The gradients of forward's five arguments. `needs`, five bools, tells which are needed; the "
      "others are None. grad_h and grad_cell may be None, which stands for zeros.",
      "grad_h", "grad_cell", "input", "weights", "bias", "old_h", "old_cell", "new_cell", "x",
      "gates", "needs");
}
