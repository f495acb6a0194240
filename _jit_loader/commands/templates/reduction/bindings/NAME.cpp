// NAME for PyTorch: checks arguments, allocates the result, calls the kernel.
#include "kernels/NAME.h"

#include "bindings/shared/op.h"

using namespace bindings;

at::Tensor forward(const at::Tensor& x) {
  const Op op("NAME");  // the name in error messages
  const at::Tensor input = op.floating("x", x).contiguous();
  const at::Tensor y = op.empty({}, input);  // {}: no dimensions, one element
  const int64_t n = input.numel();
  op.run(y, [&](auto where, auto type) {
    // where: the CPU, or the current stream of x's GPU. type: represents x's dtype.
    const at::Tensor parts = op.scratch(partial_sums(where, n), input);
    NAME(where, out(type, y), scratch(type, parts), in(type, input), n);
  });
  return y;
}

PYTHON_MODULE(module) {
  module.doc("The compiled functions of bindings/NAME.py.");
  define_differentiable<forward>(module, "forward",
                                 "The sum of x * x as a new 0-dimensional tensor, without a "
                                 "gradient; x is a floating tensor.",
                                 "x");
}
