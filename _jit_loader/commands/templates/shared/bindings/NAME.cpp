// NAME for PyTorch: checks arguments, allocates the result, calls the kernel.
#include "kernels/NAME.h"

#include "bindings/shared/op.h"

using namespace bindings;

at::Tensor forward(const at::Tensor& x) {
  const Op op("NAME");  // the name in error messages
  const at::Tensor input = op.floating("x", x).contiguous();
  const at::Tensor y = op.empty_like(input);
  op.run(y, [&](auto where, auto type) {
    // where: the CPU, or the current stream of x's GPU. type: represents x's dtype.
    NAME(where, out(type, y), in(type, input), y.numel());
  });
  return y;
}

PYTHON_MODULE(module) {
  module.doc("The compiled functions of bindings/NAME.py.");
  define_differentiable<forward>(
      module, "forward", "The result, contiguous, without a gradient; x is a floating tensor.",
      "x");
}
