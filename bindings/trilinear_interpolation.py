"""trilinear_interpolation: values inside cells from those at the corners; its nn.Module."""

import torch
from torch import nn

from bindings.shared.differentiable import differentiable, loop_vmap


def _fake_result(feats, points):
    _check_shapes("trilinear_interpolation", feats, points)
    dtype = torch.promote_types(feats.dtype, points.dtype)
    return feats.new_empty((feats.shape[0], feats.shape[2]), dtype=dtype)


def _check_shapes(name, feats, points):
    """What the compiled functions check, for tensors without data."""
    torch._check(
        feats.dim() == 3 and feats.shape[1] == 8,
        lambda: f"{name}(): argument 'feats' has shape {[*feats.shape]}; it must be (N, 8, F)",
    )
    torch._check(
        points.dim() == 2 and points.shape[1] == 3 and points.shape[0] == feats.shape[0],
        lambda: (
            f"{name}(): argument 'points' has shape {[*points.shape]}; it must be "
            f"[{feats.shape[0]}, 3] where 'feats' has shape {[*feats.shape]}"
        ),
    )


@differentiable(
    "trilinear_interpolation(Tensor feats, Tensor points) -> Tensor",
    saves=["feats", "points"],
    fake=_fake_result,
    vmap=loop_vmap,
)
def trilinear_interpolation(feats, points):
    """The value at each of N points, from the values at the 8 corners of its own cell.

    With u, v, w = (points + 1) / 2 by columns, and corner 4 iu + 2 iv + iw at (iu, iv, iw), the
    result is the sum over the corners of

        (u if iu else 1 - u) (v if iv else 1 - v) (w if iw else 1 - w) feats[:, corner]

    >>> feats = torch.arange(8.0).reshape(1, 8, 1)
    >>> trilinear_interpolation(feats, torch.tensor([[-1.0, 0.0, 1.0]]))  # between corners 1 and 3
    tensor([[2.]])

    Args:
        feats: (N, 8, F), the F values at each corner; any strides.
        points: (N, 3), positions in the cell, each coordinate from -1 to 1; any strides. Outside,
            the same formula extrapolates: nothing is clamped.
            Both are of float64, float32, float16 or bfloat16, on one CPU or CUDA device; 16-bit
            types are computed in float32 and rounded once. N and F may be 0.

    Returns:
        A new contiguous tensor (N, F), in the dtype that PyTorch promotes those of feats and points
        to.

    The gradient by feats is each corner's weight times the result's gradient g; that by points is
    half the sum over F of g times the derivative by u, v and w (the chain rule on the formula
    above). Each is computed only where it is asked for, is the same bits at every call, and can be
    differentiated again. There is no forward-mode derivative.

    Raises:
        TypeError: an argument is not a tensor, or is missing.
        NotImplementedError: another dtype, layout or device, or a forward-mode derivative.
        RuntimeError: another shape, two devices, or a CUDA tensor meets a build without CUDA code.
    """


def _fake_feats_gradient(grad, points):
    dtype = torch.promote_types(grad.dtype, points.dtype)
    return grad.new_empty((grad.shape[0], 8, grad.shape[1]), dtype=dtype)


@differentiable(
    "trilinear_interpolation_feats_backward(Tensor grad, Tensor points) -> Tensor",
    build_of=trilinear_interpolation,
    function="feats_backward",
    saves=["grad", "points"],
    fake=_fake_feats_gradient,
    vmap=loop_vmap,
)
def trilinear_interpolation_feats_backward(grad, points):
    """The gradient of trilinear_interpolation by feats: each corner's weight times grad.

    Args:
        grad: (N, F), the gradient of trilinear_interpolation's result.
        points: (N, 3), as given to it. Both are of float64, float32, float16 or bfloat16, on one
            device.

    Returns:
        A new contiguous tensor (N, 8, F), in the dtype that PyTorch promotes theirs to.

    The gradient by grad interpolates, as this function is linear in it; that by points is
    trilinear_interpolation_points_backward's result.

    Raises:
        TypeError, NotImplementedError: as trilinear_interpolation.
        RuntimeError: another shape, two devices, or a CUDA tensor meets a build without CUDA code.
    """


def _fake_points_gradient(grad, feats, points):
    dtype = torch.promote_types(torch.promote_types(grad.dtype, feats.dtype), points.dtype)
    return points.new_empty(points.shape, dtype=dtype)


@differentiable(
    "trilinear_interpolation_points_backward(Tensor grad, Tensor feats, Tensor points) -> Tensor",
    build_of=trilinear_interpolation,
    function="points_backward",
    saves=["grad", "feats", "points"],
    fake=_fake_points_gradient,
    vmap=loop_vmap,
)
def trilinear_interpolation_points_backward(grad, feats, points):
    """The gradient of trilinear_interpolation by points.

    Half the sum over F of grad times the interpolated value's derivative by u, v and w, the
    positions in the cell: half, because points run from -1 to 1 where those run from 0 to 1.

    Args:
        grad: (N, F), the gradient of trilinear_interpolation's result.
        feats: (N, 8, F), as given to it.
        points: (N, 3), as given to it. All are of float64, float32, float16 or bfloat16, on one
            device; 16-bit types are summed in float32 and rounded once.

    Returns:
        A new contiguous tensor (N, 3), in the dtype that PyTorch promotes theirs to; zeros where F
        is 0. The sum is taken in an order that the shape alone decides.

    Each gradient is the derivative along its direction (N, 3) of a function that is linear in each
    coordinate: see _derivative.

    Raises:
        TypeError, NotImplementedError: as trilinear_interpolation.
        RuntimeError: another shape, two devices, or a CUDA tensor meets a build without CUDA code.
    """


@trilinear_interpolation.gradient
def _(grad, feats, points):
    return (
        lambda: trilinear_interpolation_feats_backward(grad, points),
        lambda: trilinear_interpolation_points_backward(grad, feats, points),
    )


@trilinear_interpolation_feats_backward.gradient
def _(grad, g, points):
    return (
        lambda: trilinear_interpolation(grad, points),
        lambda: trilinear_interpolation_points_backward(g, grad, points),
    )


@trilinear_interpolation_points_backward.gradient
def _(grad, g, feats, points):
    return (
        lambda: _derivative(lambda p: trilinear_interpolation(feats, p), points, grad),
        lambda: _derivative(lambda p: trilinear_interpolation_feats_backward(g, p), points, grad),
        lambda: _derivative(
            lambda p: trilinear_interpolation_points_backward(g, feats, p), points, grad
        ),
    )


def _derivative(function, points, direction):
    """The derivative of function(points) along a direction (N, 3), exactly.

    Along each coordinate the function is linear: its slope is half the difference between its
    values at 1 and at -1.
    """
    columns = torch.arange(3, device=points.device)

    def along(i):
        ahead, behind = (function(points.masked_fill(columns == i, end)) for end in (1, -1))
        step = direction[:, i].reshape(-1, *[1] * (ahead.dim() - 1))
        return step * (ahead - behind) / 2

    return along(0) + along(1) + along(2)


class TrilinearInterpolation(nn.Module):
    """trilinear_interpolation as a module without parameters."""

    def forward(self, feats, points):
        """trilinear_interpolation(feats, points): (N, F) from (N, 8, F) and (N, 3)."""
        return trilinear_interpolation(feats, points)
