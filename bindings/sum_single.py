"""sum_single: the sum of all elements of a tensor."""

import torch

from bindings.shared.differentiable import differentiable, loop_vmap


def scalar_fake(x):
    """A result without dimensions, of x's dtype and device."""
    return torch.empty((), dtype=x.dtype, device=x.device)


@differentiable(
    "sum_single(Tensor x) -> Tensor",
    fake=scalar_fake,
    vmap=loop_vmap,
    sharding="sum",
    linear=["x"],
)
def sum_single(x):
    """The sum of all elements, on CPU and CUDA.

    >>> sum_single(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor(10.)

    Args:
        x: a tensor of float64, float32, float16 or bfloat16, of any shape and strides. 16-bit types
            are accumulated in float32 and rounded once.

    Returns:
        A new tensor without dimensions, of x's dtype; 0 if x has no elements. The additions are
        made in the order of memory, in a pattern that depends on the number of elements only,
        mostly in pairs: the same input gives the same bits, whatever the number of threads and the
        GPU.

    The gradient is grad for every element: an expanded view of it, which takes no memory. There is
    no forward-mode derivative.

    Raises:
        TypeError: x is not a tensor, or is missing.
        NotImplementedError: another dtype, layout or device, or a forward-mode derivative.
        RuntimeError: a CUDA tensor meets a build without CUDA code.
    """


@sum_single.gradient
def _(grad, shapes):
    return (grad.expand(shapes[0]),)
