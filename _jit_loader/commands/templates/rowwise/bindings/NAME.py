"""The op NAME, the softmax of each row: of a tensor's last dimension."""

from .shared.differentiable import differentiable


def vmap_rows(op, in_dims, inputs):
    """Implements vmap: moves the mapped dimension to the front, so that the rows stay rows."""
    x = inputs[0].movedim(in_dims[0], 0)
    return (op(x) if x.dim() > 1 else op(x[:, None])[:, 0]), 0


# `saves`: the tensors that the gradient needs, names of arguments or "output".
@differentiable("NAME(Tensor x) -> Tensor", saves=["output"], vmap=vmap_rows)
def NAME(x):
    """Returns exp(x) / (the sum of exp(x) over the last dimension), on CPU and CUDA.

    >>> NAME(torch.tensor([[0.0, 0.0], [0.0, 1.0]]))
    tensor([[0.5000, 0.5000],
            [0.2689, 0.7311]])

    Args:
        x: a tensor of float64, float32, float16 or bfloat16, of any shape and strides; one of no
            dimensions is a row of one element. 16-bit types are computed in float32 and rounded
            once.

    Returns:
        A new contiguous tensor of x's shape and dtype.

    The gradient is y * (grad - the row's sum of grad * y) for the result y. It can be
    differentiated again. There is no forward-mode derivative.

    Raises:
        TypeError: x is not a tensor, or is missing.
        NotImplementedError: the dtype, layout or device is not supported, or a forward-mode
            derivative is requested.
        RuntimeError: x is on CUDA and the build has no CUDA code.
    """


# Returns the gradient of each argument, from the result's gradient and the saved tensors. It can be
# differentiated again if all its operations can (PyTorch's, or those of ops like this one).
@NAME.gradient
def _(grad, y):
    return (y * (grad - (grad * y).sum(-1, keepdim=True)),)
