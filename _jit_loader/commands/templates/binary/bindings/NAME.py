"""The op NAME, a * b, element by element."""

from .shared.differentiable import differentiable


# `saves`: the tensors that the gradient needs, names of arguments or "output".
@differentiable("NAME(Tensor a, Tensor b) -> Tensor", saves=["a", "b"])
def NAME(a, b):
    """Returns a * b, element by element, on CPU and CUDA.

    >>> NAME(torch.tensor([1.0, 2.0]), torch.tensor([0.5]))
    tensor([0.5000, 1.0000])

    Args:
        a, b: tensors of float64, float32, float16 or bfloat16, of any shapes and strides that
            broadcast, on one device. 16-bit types are computed in float32 and rounded once.

    Returns:
        A new contiguous tensor of the broadcast shape, in the dtype that PyTorch promotes a's and
        b's to.

    The gradients are grad * b and grad * a, each summed over the dimensions that were broadcast.
    They can be differentiated again. There is no forward-mode derivative.

    Raises:
        TypeError: an argument is not a tensor, or is missing.
        NotImplementedError: the dtype, layout or device is not supported, or a forward-mode
            derivative is requested.
        RuntimeError: the devices differ, the shapes do not broadcast, or a tensor is on CUDA and
            the build has no CUDA code.
    """


# Returns the gradient of each argument, from the result's gradient and the saved tensors; or a
# function, which is called only if that gradient is needed. It can be differentiated again if all
# its operations can (PyTorch's, or those of ops like this one). Autograd sums each gradient over
# the dimensions that were broadcast.
@NAME.gradient
def _(grad, a, b):
    return lambda: grad * b, lambda: grad * a
