// NAME for PyTorch: checks arguments, allocates the result, calls the kernel.
#include "kernels/NAME.h"

#include "bindings/shared/op.h"

using namespace bindings;

at::Tensor forward(const at::Tensor& a, const at::Tensor& b) {
  const Op op("NAME");  // the name in error messages
  at::Tensor x = a, y = b;
  op.broadcast("a", x, "b", y);  // to one shape and dtype, contiguous
  const at::Tensor c = op.empty_like(x);
  op.run(c, [&](auto where, auto type) {
    // where: the CPU, or the current stream of c's GPU. type: represents c's dtype.
    NAME(where, out(type, c), in(type, x), in(type, y), c.numel());
  });
  return c;
}

PYTHON_MODULE(module) {
  module.doc("The compiled functions of bindings/NAME.py.");
  define_differentiable<forward>(
      module, "forward",
      "a * b as a new contiguous tensor, without a gradient. Floating tensors on one device; "
      "shapes broadcast and dtypes promote as in PyTorch.",
      "a", "b");
}
