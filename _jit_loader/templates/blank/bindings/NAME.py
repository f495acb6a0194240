"""NAME: a copy of x."""

from bindings.shared.differentiable import differentiable


# What the gradient needs, it is given where `saves` names it: saves=["x", "output"].
@differentiable("NAME(Tensor x) -> Tensor")
def NAME(x):
    """A copy of x, on CPU and CUDA.

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
        NotImplementedError: another dtype, layout or device, or a forward-mode derivative.
        RuntimeError: a CUDA tensor meets a build without CUDA code.
    """


# Given the result's gradient and what was saved, the gradient of each argument. Written in
# operations that have a gradient themselves, PyTorch's or ops like this one. An op whose result
# differs from x in shape says by fake=... what it is like, and by vmap=loop_vmap how it is mapped.
@NAME.gradient
def _(grad):
    return (grad,)
