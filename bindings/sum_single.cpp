#include "kernels/sum_single.h"

#include "bindings/shared/op.h"

using namespace bindings;

at::Tensor forward(const at::Tensor& x) {
  const Op op("sum_single");
  op.floating("x", x);
  // A transposed tensor is summed in memory order.
  const at::Tensor elements = x.is_non_overlapping_and_dense() ? x : x.contiguous();
  const at::Tensor sum = op.empty({}, x);
  const int64_t n = x.numel();
  op.run(x, [&](auto where, auto type) {
    const at::Tensor sums = op.scratch(partial_sums(where, n), x);
    sum_single(where, out(type, sum), scratch(type, sums), in(type, elements), n);
  });
  return sum;
}

at::Tensor gradient(const at::Tensor& grad, const Shapes& shapes) { return grad.expand(shapes[0]); }

PYTHON_MODULE(module) {
  module.doc("sum_single, compiled; bindings/sum_single.py has the function with a gradient.");
  define_differentiable<forward, gradient>(
      module, "forward",
      "The sum of all elements of a floating tensor, as a new 0-dimensional "
      "tensor of its dtype, without a gradient.",
      "x");
}
