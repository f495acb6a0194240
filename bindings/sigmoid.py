"""The op sigmoid, 1 / (1 + exp(-x)), and its nn.Module Sigmoid."""

from torch import nn

from .shared.differentiable import differentiable


@differentiable("sigmoid(Tensor x) -> Tensor", saves=["output"])
def sigmoid(x):
    """Returns 1 / (1 + exp(-x)), element by element, on CPU and CUDA.

    >>> sigmoid(torch.tensor([-1000.0, 0.0, 1000.0]))
    tensor([0.0000, 0.5000, 1.0000])

    Below about -88 for float32, and -709 for float64, the result is 0, as in PyTorch.

    Args:
        x: a tensor of float64, float32, float16 or bfloat16, of any shape and strides. 16-bit types
            are computed in float32 and rounded once.

    Returns:
        A new contiguous tensor of x's shape and dtype.

    The gradient is grad * y * (1 - y), from the saved result y: the derivative of the logistic
    function. It can be differentiated again. There is no forward-mode derivative.

    Raises:
        TypeError: x is not a tensor, or is missing.
        NotImplementedError: the dtype, layout or device is not supported, or a forward-mode
            derivative is requested.
        RuntimeError: x is on CUDA and the build has no CUDA code.
    """


@differentiable(
    "sigmoid_backward(Tensor grad, Tensor y) -> Tensor",
    build_of=sigmoid,
    function="backward",
    saves=["grad", "y"],
    linear=["grad"],
)
def sigmoid_backward(grad, y):
    """Returns grad * y * (1 - y), the gradient of a sigmoid whose result is y."""


@sigmoid.gradient
def _(grad, y):
    return (sigmoid_backward(grad, y),)


@sigmoid_backward.gradient
def _(grad, g, y):
    return lambda: sigmoid_backward(grad, y), lambda: grad * g * (1 - 2 * y)


class Sigmoid(nn.Module):
    """sigmoid as a module without parameters."""

    def forward(self, x):
        """Returns sigmoid(x)."""
        return sigmoid(x)
