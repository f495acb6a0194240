// NAME for PyTorch: checks arguments, allocates the result, calls the kernel.
#include "kernels/NAME.h"

#include "bindings/shared/op.h"

using namespace bindings;

at::Tensor forward(const at::Tensor& x) {
  const Op op("NAME");  // the name in error messages
  const at::Tensor input = op.floating("x", x).contiguous();
  const at::Tensor y = op.empty_like(input);
  // A tensor of no dimensions is a row of one element.
  const int64_t width = input.dim() == 0 ? 1 : input.size(-1);
  const int64_t rows = width == 0 ? 0 : input.numel() / width;
  op.run(y, [&](auto where, auto type) {
    // where: the CPU, or the current stream of x's GPU. type: represents x's dtype.
    NAME(where, out(type, y), in(type, input), rows, width);
  });
  return y;
}

PYTHON_MODULE(module) {
  module.doc("The compiled functions of bindings/NAME.py.");
  define_differentiable<forward>(
      module, "forward", "The result, contiguous, without a gradient; x is a floating tensor.",
      "x");
}
