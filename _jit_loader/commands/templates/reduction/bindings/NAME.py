"""The op NAME, the sum of x * x over all elements of a tensor."""

import torch

from .shared.defaults import loop_vmap
from .shared.differentiable import differentiable


def result_like(x):
    """Makes an empty 0-dimensional result of x's dtype and device."""
    return torch.empty((), dtype=x.dtype, device=x.device)


@differentiable(
    "NAME(Tensor x) -> Tensor",
    saves=["x"],  # the tensors that the gradient needs: names of arguments, or "output"
    fake=result_like,  # tells torch.compile the result's shape
    vmap=loop_vmap,  # one call for each index
    sharding="sum",  # for DTensor: the result is the sum of the shards' results
)
def NAME(x):
    """Returns the sum of x * x over all elements, on CPU and CUDA.

    >>> NAME(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor(30.)

    Args:
        x: a tensor of float64, float32, float16 or bfloat16, of any shape and strides. 16-bit types
            are computed and accumulated in float32 and rounded once.

    Returns:
        A new 0-dimensional tensor of x's dtype; 0 if x has no elements. The same input gives
        the same bits for any number of threads and on any GPU.

    The gradient is 2 * x * grad. It can be differentiated again. There is no forward-mode
    derivative.

    Raises:
        TypeError: x is not a tensor, or is missing.
        NotImplementedError: the dtype, layout or device is not supported, or a forward-mode
            derivative is requested.
        RuntimeError: x is on CUDA and the build has no CUDA code.
    """


# Returns the gradient of each argument, from the result's gradient and the saved tensors. It can be
# differentiated again if all its operations can (PyTorch's, or those of ops like this one).
@NAME.gradient
def _(grad, x):
    return (2 * x * grad,)
