#include "kernels/sigmoid.h"

#include "bindings/shared/op.h"

using namespace bindings;

at::Tensor forward(const at::Tensor& x) {
  const Op op("sigmoid");
  const at::Tensor contiguous = op.floating("x", x).contiguous();
  const at::Tensor y = op.empty_like(x);
  op.run(y, [&](auto where, auto type) {
    sigmoid(where, out(type, y), in(type, contiguous), y.numel());
  });
  return y;
}

at::Tensor backward(const at::Tensor& grad, const at::Tensor& y) {
  const Op op("sigmoid_backward");
  at::Tensor g = grad, output = y;
  op.broadcast("grad", g, "y", output);
  const at::Tensor dx = op.empty_like(g);
  op.run(dx, [&](auto where, auto type) {
    sigmoid_backward(where, out(type, dx), in(type, g), in(type, output), dx.numel());
  });
  return dx;
}

PYTHON_MODULE(module) {
  module.doc("sigmoid, compiled; bindings/sigmoid.py has the function with a gradient.");
  define_differentiable<forward, backward>(
      module, "forward",
      "1 / (1 + exp(-x)) as a new contiguous tensor, without a gradient; x is a floating tensor.",
      "x");
  define_differentiable<backward>(
      module, "backward",
      "sigmoid's gradient grad * y * (1 - y) from its output y: floating "
      "tensors on one device, broadcast and promoted as in PyTorch.",
      "grad", "y");
}
