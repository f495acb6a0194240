"""The op NAME, x * x, element by element."""

from .shared.differentiable import differentiable


# `saves`: the tensors that the gradient needs, names of arguments or "output".
@differentiable("NAME(Tensor x) -> Tensor", saves=["x"])
def NAME(x):
    """Returns x * x, element by element, on CPU and CUDA.

    >>> NAME(torch.tensor([1.0, -2.0]))
    tensor([1., 4.])

    Args:
        x: a tensor of float64, float32, float16 or bfloat16, of any shape and strides. 16-bit types
            are computed in float32 and rounded once.

    Returns:
        A new contiguous tensor of x's shape and dtype.

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
