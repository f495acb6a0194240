"""The op add2, the sum of two tensors, and AddModel, a minimal model to train with it."""

import torch
from torch import nn

from .shared.differentiable import differentiable


@differentiable("add2(Tensor a, Tensor b) -> Tensor", linear=["a", "b"])
def add2(a, b):
    """Returns a + b, element by element, on CPU and CUDA.

    >>> add2(torch.tensor([1.0, 2.0]), torch.tensor([0.5]))
    tensor([1.5000, 2.5000])

    Args:
        a, b: tensors of float64, float32, float16 or bfloat16, of any shapes and strides that
            broadcast, on one device. 16-bit types are added in float32 and rounded once.

    Returns:
        A new contiguous tensor of the broadcast shape, in the dtype that PyTorch promotes a's and
        b's to.

    The gradient of each input is the result's gradient, summed over the dimensions that were
    broadcast. There is no forward-mode derivative.

    Raises:
        TypeError: an argument is not a tensor, or is missing.
        NotImplementedError: the dtype, layout or device is not supported, or a forward-mode
            derivative is requested.
        RuntimeError: the devices differ, the shapes do not broadcast, or a tensor is on CUDA and
            the build has no CUDA code.
    """


@add2.gradient
def _(grad):
    return grad, grad


class AddModel(nn.Module):
    """A model of two parameters a and b that computes add2(a * a, b * b).

    Each parameter has n float32 elements from a standard normal distribution. SGD on the sum of the
    results drives both to zero.
    """

    def __init__(self, n):
        super().__init__()
        self.a = nn.Parameter(torch.randn(n, dtype=torch.float32))
        self.b = nn.Parameter(torch.randn(n, dtype=torch.float32))

    def forward(self):
        """Returns the n sums."""
        return add2(self.a * self.a, self.b * self.b)
