"""The op NAME, a copy of x."""

from .shared.differentiable import differentiable


# `saves`, such as saves=["x", "output"], names the tensors that the gradient needs.
@differentiable("NAME(Tensor x) -> Tensor")
def NAME(x):
    """Returns a copy of x, on CPU and CUDA.

    >>> NAME(torch.tensor([1.0, -2.0]))
    tensor([ 1., -2.])

    Args:
        x: a tensor of float64, float32, float16 or bfloat16, of any shape and strides. 16-bit types
            are copied as float32, which changes nothing.

    Returns:
        A new contiguous tensor of x's shape and dtype.

    The gradient is grad. There is no forward-mode derivative.

    Raises:
        TypeError: x is not a tensor, or is missing.
        NotImplementedError: the dtype, layout or device is not supported, or a forward-mode
            derivative is requested.
        RuntimeError: x is on CUDA and the build has no CUDA code.
    """


# Returns the gradient of each argument, from the result's gradient and the saved tensors. It can be
# differentiated again if all its operations can (PyTorch's, or those of ops like this one). An op
# whose result differs from x in shape needs fake=..., which makes an empty result, and
# vmap=loop_vmap.
@NAME.gradient
def _(grad):
    return (grad,)
