#include "kernels/my_op.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/neg_ops.h>

#include "bindings/shared/op.h"

using namespace bindings;

at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
  const Op op("my_op");
  at::Tensor a = x, b = y;
  op.broadcast("x", a, "y", b);
  const at::Tensor z = op.empty_like(a);
  op.run(z, [&](auto where, auto type) {
    my_op(where, out(type, z), in(type, a), in(type, b), z.numel());
  });
  return z;
}

std::tuple<at::Tensor, at::Tensor> backward(const at::Tensor& grad) {
  const Op op("my_op_backward");
  const at::Tensor g = op.floating("grad", grad).contiguous();
  const at::Tensor dx = op.empty_like(g), dy = op.empty_like(g);
  op.run(g, [&](auto where, auto type) {
    my_op_backward(where, out(type, dx), out(type, dy), in(type, g), g.numel());
  });
  return {dx, dy};
}

// If only one gradient is needed, PyTorch's own operators compute it.
std::tuple<at::Tensor, at::Tensor> gradients(const at::Tensor& grad, std::array<bool, 2> needs) {
  if (needs[0] && needs[1]) return backward(grad);
  if (needs[0]) return {at::_ops::mul_Scalar::call(grad, 3), at::Tensor()};
  return {at::Tensor(), at::_ops::neg::call(grad)};
}

PYTHON_MODULE(module) {
  module.doc("my_op, compiled; bindings/my_op.py has the function with a gradient.");
  define_differentiable<forward, gradients>(
      module, "forward",
      "3 * x - y as a new contiguous tensor, without a gradient. Floating tensors on one device; "
      "shapes broadcast and dtypes promote as in PyTorch.",
      "x", "y");
  define_differentiable<backward>(
      module, "backward", "my_op's gradients (3 * grad, -grad), both of grad's shape and dtype.",
      "grad");
}
