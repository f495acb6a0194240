"""The op sum_single, the sum of all elements of a tensor."""

import torch

from .shared.defaults import loop_vmap
from .shared.differentiable import differentiable


def scalar_fake(x):
    """Makes an empty 0-dimensional result of x's dtype and device."""
    return torch.empty((), dtype=x.dtype, device=x.device)


@differentiable(
    "sum_single(Tensor x) -> Tensor",
    fake=scalar_fake,
    vmap=loop_vmap,
    sharding="sum",
    linear=["x"],
)
def sum_single(x):
    """Returns the sum of all elements, on CPU and CUDA.

    >>> sum_single(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor(10.)

    Args:
        x: a tensor of float64, float32, float16 or bfloat16, of any shape and strides. 16-bit types
            are accumulated in float32 and rounded once.

    Returns:
        A new 0-dimensional tensor of x's dtype; 0 if x has no elements. The elements are
        added in memory order, mostly pairwise. The order depends only on the number of elements:
        the same input gives the same bits for any number of threads and on any GPU.

    The gradient is grad for every element, as an expanded view that takes no memory. There is no
    forward-mode derivative.

    Raises:
        TypeError: x is not a tensor, or is missing.
        NotImplementedError: the dtype, layout or device is not supported, or a forward-mode
            derivative is requested.
        RuntimeError: x is on CUDA and the build has no CUDA code.
    """


@sum_single.gradient
def _(grad, shapes):
    return (grad.expand(shapes[0]),)
