#include "kernels/add2.h"

#include "bindings/shared/op.h"

using namespace bindings;

at::Tensor forward(const at::Tensor& a, const at::Tensor& b) {
  const Op op("add2");
  at::Tensor x = a, y = b;
  op.broadcast("a", x, "b", y);
  const at::Tensor c = op.empty_like(x);
  op.run(c, [&](auto where, auto type) {
    add2(where, out(type, c), in(type, x), in(type, y), c.numel());
  });
  return c;
}

std::tuple<at::Tensor, at::Tensor> gradients(const at::Tensor& grad) { return {grad, grad}; }

void torch_launch_add2(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, int64_t n) {
  const Op op("torch_launch_add2");
  TORCH_CHECK_VALUE(n >= 0, "torch_launch_add2(): argument 'n' is ", n,
                    "; it must not be negative");
  op.float_buffer("c", c, n);
  op.same_device("c", c, "a", op.float_buffer("a", a, n));
  op.same_device("c", c, "b", op.float_buffer("b", b, n));
  op.no_partial_overlap("c", c, "a", a, n);
  op.no_partial_overlap("c", c, "b", b, n);
  op.run(c, [&](auto where, auto type) { add2(where, out(type, c), in(type, a), in(type, b), n); });
  c.unsafeGetTensorImpl()->bump_version();
}

PYTHON_MODULE(module) {
  module.doc("add2, compiled; bindings/add2.py has the function with a gradient.");
  define_differentiable<forward, gradients>(
      module, "forward",
      "a + b as a new contiguous tensor, without a gradient. Floating tensors on one device; "
      "shapes broadcast and dtypes promote as in PyTorch.",
      "a", "b");
  module.define<torch_launch_add2>(
      "torch_launch_add2",
      "Writes a[i] + b[i] into c[i] for every i in [0, n). c, a and b are contiguous float32 "
      "tensors on one device, each of at least n elements; c may be a or b, but must not partly "
      "overlap one. Raises ValueError for a negative n, and RuntimeError for any other fault.",
      "c", "a", "b", "n");
}
