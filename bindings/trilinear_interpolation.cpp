#include "kernels/trilinear_interpolation.h"

#include "bindings/shared/op.h"

using namespace bindings;

namespace {

void check_feats(const Op& op, const at::Tensor& feats) {
  op.check(feats.dim() == 3 && feats.size(1) == 8, "feats", "has shape ", feats.sizes(),
           "; it must be (N, 8, F)");
}

void check_grad(const Op& op, const at::Tensor& grad) {
  op.check(grad.dim() == 2, "grad", "has shape ", grad.sizes(), "; it must be (N, F)");
}

// Checks that x has this shape, which follows from the shape of y.
void check_shape(const Op& op, const char* argument, const at::Tensor& x, at::IntArrayRef shape,
                 const char* other, const at::Tensor& y) {
  op.check(x.sizes() == shape, argument, "has shape ", x.sizes(), "; it must be ", shape, " if '",
           other, "' has shape ", y.sizes());
}

}  // namespace

at::Tensor forward(const at::Tensor& feats, const at::Tensor& points) {
  const Op op("trilinear_interpolation");
  at::Tensor x = feats, p = points;
  op.promote("feats", x, "points", p);
  check_feats(op, x);
  const int64_t n = x.size(0), f = x.size(2);
  check_shape(op, "points", p, {n, 3}, "feats", x);
  x = x.contiguous();
  p = p.contiguous();
  const at::Tensor result = op.empty({n, f}, x);
  op.run(result, [&](auto where, auto type) {
    trilinear_interpolation(where, out(type, result), in(type, x), in(type, p), n, f);
  });
  return result;
}

at::Tensor feats_backward(const at::Tensor& grad, const at::Tensor& points) {
  const Op op("trilinear_interpolation_feats_backward");
  at::Tensor g = grad, p = points;
  op.promote("grad", g, "points", p);
  check_grad(op, g);
  const int64_t n = g.size(0), f = g.size(1);
  check_shape(op, "points", p, {n, 3}, "grad", g);
  g = g.contiguous();
  p = p.contiguous();
  const at::Tensor dfeats = op.empty({n, 8, f}, g);
  op.run(dfeats, [&](auto where, auto type) {
    trilinear_interpolation_feats_backward(where, out(type, dfeats), in(type, g), in(type, p), n,
                                           f);
  });
  return dfeats;
}

at::Tensor points_backward(const at::Tensor& grad, const at::Tensor& feats,
                           const at::Tensor& points) {
  const Op op("trilinear_interpolation_points_backward");
  at::Tensor g = grad, x = feats, p = points;
  op.promote("grad", g, "feats", x);
  op.promote("grad", g, "points", p);
  op.promote("grad", g, "feats", x);  // points may have the widest type
  check_feats(op, x);
  const int64_t n = x.size(0), f = x.size(2);
  check_shape(op, "grad", g, {n, f}, "feats", x);
  check_shape(op, "points", p, {n, 3}, "feats", x);
  g = g.contiguous();
  x = x.contiguous();
  p = p.contiguous();
  const at::Tensor dpoints = op.empty({n, 3}, p);
  op.run(dpoints, [&](auto where, auto type) {
    trilinear_interpolation_points_backward(where, out(type, dpoints), in(type, g), in(type, x),
                                            in(type, p), n, f);
  });
  return dpoints;
}

std::tuple<at::Tensor, at::Tensor> backward(const at::Tensor& grad, const at::Tensor& feats,
                                            const at::Tensor& points) {
  return {feats_backward(grad, points), points_backward(grad, feats, points)};
}

std::tuple<at::Tensor, at::Tensor> gradients(const at::Tensor& grad, const at::Tensor& feats,
                                             const at::Tensor& points, std::array<bool, 2> needs) {
  return {needs[0] ? feats_backward(grad, points) : at::Tensor(),
          needs[1] ? points_backward(grad, feats, points) : at::Tensor()};
}

// Only the shape of feats is used.
at::Tensor trilinearinterpolation_bw(const at::Tensor& grad, const at::Tensor& feats,
                                     const at::Tensor& points) {
  const Op op("trilinearinterpolation_bw");
  check_feats(op, op.floating("feats", feats));
  op.floating("grad", grad);
  check_shape(op, "grad", grad, {feats.size(0), feats.size(2)}, "feats", feats);
  return feats_backward(grad, points);
}

PYTHON_MODULE(module) {
  module.doc(
      "trilinear_interpolation, compiled; bindings/trilinear_interpolation.py has the function "
      "with a gradient.");
  const char* forward_doc =
      "The values (N, F) at points (N, 3) as a new contiguous tensor, without a gradient. Each "
      "point is in its own cell; feats (N, 8, F) are the values at the cells' corners. Floating "
      "tensors on one device; dtypes promote as in PyTorch.";
  define_differentiable<forward, gradients>(module, "forward", forward_doc, "feats", "points");
  define_differentiable<feats_backward>(
      module, "feats_backward",
      "The gradient of feats (N, 8, F), from the result's gradient grad (N, F) and points (N, 3).",
      "grad", "points");
  define_differentiable<points_backward>(
      module, "points_backward",
      "The gradient of points (N, 3), from the result's gradient grad (N, F), feats (N, 8, F) and "
      "points (N, 3).",
      "grad", "feats", "points");
  module.define<backward>(
      "backward",
      "The gradients of feats (N, 8, F) and points (N, 3), from the result's gradient grad (N, F): "
      "the results of feats_backward and points_backward.",
      "grad", "feats", "points");
  module.define<forward>("trilinearinterpolation", forward_doc, "feats", "points");
  module.define<trilinearinterpolation_bw>(
      "trilinearinterpolation_bw",
      "feats_backward(grad, points), the gradient of feats; only the shape of feats is used.",
      "grad", "feats", "points");
}
