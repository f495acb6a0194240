#include "kernels/two_norm.h"

#include "bindings/shared/op.h"

using namespace bindings;

static void write_norm(const Op& op, const at::Tensor& norm, const at::Tensor& a,
                       const at::Tensor& b, int64_t n) {
  op.run(a, [&](auto where, auto type) {
    const at::Tensor sums = op.scratch(partial_sums(where, n), a);
    two_norm(where, out(type, norm), scratch(type, sums), in(type, a), in(type, b), n);
  });
}

at::Tensor forward(const at::Tensor& a, const at::Tensor& b) {
  const Op op("two_norm");
  at::Tensor x = a, y = b;
  op.broadcast("a", x, "b", y);
  const at::Tensor norm = op.empty({}, x);
  write_norm(op, norm, x, y, x.numel());
  return norm;
}

// The value, one element that the kernel reads from memory, in x's dtype.
static at::Tensor scalar(const Op& op, const char* argument, const at::Tensor& value,
                         const at::Tensor& x) {
  op.floating(argument, value);
  op.same_device(argument, value, "a", x);
  op.check(value.numel() == 1, argument, "has ", value.numel(), " elements; it must have one");
  return value.to(x.scalar_type());
}

// Returns memory for a gradient of x's shape: that of x itself if broadcasting has copied the
// argument to make x, else new memory.
static at::Tensor result_in(const Op& op, const at::Tensor& x, const at::Tensor& argument) {
  return x.is_alias_of(argument) ? op.empty_like(x) : x;
}

static std::tuple<at::Tensor, at::Tensor> gradients_of(const at::Tensor& grad, const at::Tensor& a,
                                                       const at::Tensor& b, const at::Tensor& norm,
                                                       bool both) {
  const Op op("two_norm_backward");
  at::Tensor x = a, y = b;
  op.broadcast("a", x, "b", y);
  const at::Tensor g = scalar(op, "grad", grad, x), length = scalar(op, "norm", norm, x);
  const at::Tensor da = both || y.is_alias_of(b) ? result_in(op, x, a) : y;
  const at::Tensor db = both ? result_in(op, y, b) : at::Tensor();
  op.run(x, [&](auto where, auto type) {
    two_norm_backward(where, out(type, da), both ? out(type, db) : nullptr, in(type, g),
                      in(type, x), in(type, y), in(type, length), x.numel());
  });
  return {da, db};
}

std::tuple<at::Tensor, at::Tensor> backward(const at::Tensor& grad, const at::Tensor& a,
                                            const at::Tensor& b, const at::Tensor& norm) {
  return gradients_of(grad, a, b, norm, true);
}

at::Tensor backward_of_a(const at::Tensor& grad, const at::Tensor& a, const at::Tensor& b,
                         const at::Tensor& norm) {
  return std::get<0>(gradients_of(grad, a, b, norm, false));
}

std::tuple<at::Tensor, at::Tensor> gradients(const at::Tensor& grad, const at::Tensor& a,
                                             const at::Tensor& b, const at::Tensor& norm,
                                             std::array<bool, 2> needs) {
  if (needs[0] && needs[1]) return backward(grad, a, b, norm);
  if (needs[0]) return {backward_of_a(grad, a, b, norm), at::Tensor()};
  return {at::Tensor(), backward_of_a(grad, b, a, norm)};
}

void two_norm_of_matrices(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, int64_t n,
                          int64_t m) {
  const Op op("two_norm");
  int64_t elements = 0;
  TORCH_CHECK_VALUE(n >= 0, "two_norm(): argument 'n' is ", n, "; it must not be negative");
  TORCH_CHECK_VALUE(m >= 0, "two_norm(): argument 'm' is ", m, "; it must not be negative");
  TORCH_CHECK_VALUE(!__builtin_mul_overflow(n, m, &elements), "two_norm(): ", n, " x ", m,
                    " elements overflow 64 bits");
  op.float_buffer("a", a, elements);
  op.same_device("a", a, "b", op.float_buffer("b", b, elements));
  op.same_device("a", a, "c", op.float_buffer("c", c, 1));
  write_norm(op, c, a, b, elements);
  c.unsafeGetTensorImpl()->bump_version();
}

PYTHON_MODULE(module) {
  module.doc("two_norm, compiled; bindings/two_norm.py has the function with a gradient.");
  define_differentiable<forward, gradients>(
      module, "forward",
      "sqrt(sum((a - b)^2)) as a new 0-dimensional tensor, without a gradient. Floating "
      "tensors on one device; shapes broadcast and dtypes promote as in PyTorch.",
      "a", "b");
  define_differentiable<backward>(
      module, "backward",
      "(da, db): da = grad * (a - b) / norm, or 0 if norm is 0, and db = -da, both new and of "
      "the shape and dtype that a and b broadcast and promote to. grad and norm have one element.",
      "grad", "a", "b", "norm");
  define_differentiable<backward_of_a>(
      module, "backward_of_a", "The first result of backward, without the work for the second.",
      "grad", "a", "b", "norm");
  module.define<two_norm_of_matrices>(
      "two_norm",
      "Writes sqrt(sum((a - b)^2)) into the first element of c, for matrices a and b of n x m. "
      "a, b and c are contiguous float32 tensors on one device, a and b of at least n * m "
      "elements, of which the first n * m are used; c may be part of a or b. Raises ValueError for "
      "a negative n or m, and RuntimeError for any other fault.",
      "a", "b", "c", "n", "m");
}
