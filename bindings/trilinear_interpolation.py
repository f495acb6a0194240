"""The op trilinear_interpolation, values inside cells from those at the corners; its nn.Module."""

import torch
from torch import nn

from .shared.defaults import loop_vmap
from .shared.differentiable import differentiable


def _fake_result(feats, points):
    _check_shapes("trilinear_interpolation", feats, points)
    dtype = torch.promote_types(feats.dtype, points.dtype)
    return feats.new_empty((feats.shape[0], feats.shape[2]), dtype=dtype)


def _check_shapes(name, feats, points):
    """Makes the checks of the compiled functions for tensors without data."""
    torch._check(
        feats.dim() == 3 and feats.shape[1] == 8,
        lambda: f"{name}(): argument 'feats' has shape {[*feats.shape]}; it must be (N, 8, F)",
    )
    torch._check(
        points.dim() == 2 and points.shape[1] == 3 and points.shape[0] == feats.shape[0],
        lambda: (
            f"{name}(): argument 'points' has shape {[*points.shape]}; it must be "
            f"[{feats.shape[0]}, 3] if 'feats' has shape {[*feats.shape]}"
        ),
    )


@differentiable(
    "trilinear_interpolation(Tensor feats, Tensor points) -> Tensor",
    saves=["feats", "points"],
    fake=_fake_result,
    vmap=loop_vmap,
)
def trilinear_interpolation(feats, points):
    """Returns the value at each of N points, from the values at the 8 corners of the point's cell.

    With u, v, w the columns of (points + 1) / 2, and corner 4 iu + 2 iv + iw at (iu, iv, iw), the
    result is the sum over the corners of

        (u if iu else 1 - u) (v if iv else 1 - v) (w if iw else 1 - w) feats[:, corner]

    >>> feats = torch.arange(8.0).reshape(1, 8, 1)
    >>> trilinear_interpolation(feats, torch.tensor([[-1.0, 0.0, 1.0]]))  # between corners 1 and 3
    tensor([[2.]])

    Args:
        feats: (N, 8, F), the F values at each corner; any strides.
        points: (N, 3), positions in the cell, each coordinate from -1 to 1; any strides. Outside
            that range the same formula extrapolates; nothing is clamped.

    Both have dtype float64, float32, float16 or bfloat16, and are on one CPU or CUDA device. 16-bit
    types are computed in float32 and rounded once. N and F may be 0.

    Returns:
        A new contiguous tensor (N, F), in the dtype that PyTorch promotes those of feats and points
        to.

    With g the result's gradient, the gradient of feats is each corner's weight times g. That of
    points is half the sum over F of g times the derivative with respect to u, v and w (the chain
    rule on the formula above). Each is computed only if it is needed, gives the same bits at every
    call, and can be differentiated again. There is no forward-mode derivative.

    Raises:
        TypeError: an argument is not a tensor, or is missing.
        NotImplementedError: the dtype, layout or device is not supported, or a forward-mode
            derivative is requested.
        RuntimeError: a shape is not as above, the devices differ, or a tensor is on CUDA and the
            build has no CUDA code.
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
    """Returns the gradient of trilinear_interpolation's feats: each corner's weight times grad.

    Args:
        grad: (N, F), the gradient of trilinear_interpolation's result.
        points: (N, 3), the same argument. Both have dtype float64, float32, float16 or bfloat16,
            and are on one device.

    Returns:
        A new contiguous tensor (N, 8, F), in the dtype that PyTorch promotes theirs to.

    This function is linear in grad, so the gradient of grad is an interpolation; that of points
    comes from trilinear_interpolation_points_backward.

    Raises:
        TypeError, NotImplementedError: as for trilinear_interpolation.
        RuntimeError: a shape is not as above, the devices differ, or a tensor is on CUDA and the
            build has no CUDA code.
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
    """Returns the gradient of trilinear_interpolation's points.

    It is half the sum over F of grad times the derivative of the interpolated value with respect to
    the position u, v, w in the cell. The factor is a half because points range from -1 to 1 and
    positions from 0 to 1.

    Args:
        grad: (N, F), the gradient of trilinear_interpolation's result.
        feats: (N, 8, F), the same argument.
        points: (N, 3), the same argument. All have dtype float64, float32, float16 or bfloat16, and
            are on one device. 16-bit types are summed in float32 and rounded once.

    Returns:
        A new contiguous tensor (N, 3), in the dtype that PyTorch promotes theirs to; zeros if F is
        0. The order of the additions depends on the shape alone.

    Each of its gradients is the derivative, along a direction (N, 3), of a function that is linear
    in each coordinate: see _derivative.

    Raises:
        TypeError, NotImplementedError: as for trilinear_interpolation.
        RuntimeError: a shape is not as above, the devices differ, or a tensor is on CUDA and the
            build has no CUDA code.
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
    """Returns the exact derivative of function(points) along a direction (N, 3).

    The function is linear in each coordinate: its slope is half the difference between its values
    at 1 and at -1.
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
        """Returns trilinear_interpolation(feats, points): (N, F) from (N, 8, F) and (N, 3)."""
        return trilinear_interpolation(feats, points)
