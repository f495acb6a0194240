"""The op my_op, 3x - y, for which eager PyTorch needs two kernels; and its nn.Module MyOp."""

import torch
from torch import nn

from .shared.differentiable import differentiable


@differentiable("my_op(Tensor x, Tensor y) -> Tensor", linear=["x", "y"])
def my_op(x, y):
    """Returns 3 * x - y, element by element, on CPU and CUDA.

    >>> my_op(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.0]))
    tensor([2.5000, 6.0000])

    Args:
        x, y: tensors of float64, float32, float16 or bfloat16, of any shapes and strides that
            broadcast, on one device. 16-bit types are computed in float32 and rounded once.

    Returns:
        A new contiguous tensor of the broadcast shape, in the dtype that PyTorch promotes x's and
        y's to.

    The gradients are 3 * grad and -grad, each summed over the dimensions that were broadcast: the
    op is linear. There is no forward-mode derivative.

    Raises:
        TypeError: an argument is not a tensor, or is missing.
        NotImplementedError: the dtype, layout or device is not supported, or a forward-mode
            derivative is requested.
        RuntimeError: the devices differ, the shapes do not broadcast, or a tensor is on CUDA and
            the build has no CUDA code.
    """


def pair_fake(grad):
    """Makes two empty results like grad, for my_op_backward."""
    return torch.empty_like(grad, memory_format=torch.contiguous_format), torch.empty_like(
        grad, memory_format=torch.contiguous_format
    )


@differentiable(
    "my_op_backward(Tensor grad) -> (Tensor dx, Tensor dy)",
    build_of=my_op,
    function="backward",
    fake=pair_fake,
    linear=["grad"],
)
def my_op_backward(grad):
    """Returns (3 * grad, -grad); it reads grad once."""


@my_op.gradient
def _(grad, needs):
    return my_op_backward(grad) if all(needs) else (lambda: 3 * grad, lambda: -grad)


@my_op_backward.gradient
def _(grad_dx, grad_dy):
    return (my_op(grad_dx, grad_dy),)


class MyOp(nn.Module):
    """my_op as a module without parameters."""

    def forward(self, x, y):
        """Returns my_op(x, y)."""
        return my_op(x, y)
