"""The op two_norm, the Euclidean distance between two tensors."""

import torch

from .shared.defaults import elementwise_fake, loop_vmap
from .shared.differentiable import differentiable


def norm_fake(a, b):
    """Makes an empty 0-dimensional result of the dtype that a's and b's promote to."""
    return elementwise_fake(a, b).new_empty(())


@differentiable(
    "two_norm(Tensor a, Tensor b) -> Tensor",
    saves=["a", "b", "output"],
    fake=norm_fake,
    vmap=loop_vmap,
    sharding="norm",
)
def two_norm(a, b):
    """Returns sqrt(sum((a - b)^2)) over all elements, on CPU and CUDA.

    >>> two_norm(torch.tensor([3.0, 1.0]), torch.tensor([0.0, 5.0]))
    tensor(5.)

    Args:
        a, b: tensors of float64, float32, float16 or bfloat16, of any shapes and strides that
            broadcast, on one device. 16-bit types are subtracted and accumulated in float32, and
            the result is rounded once.

    Returns:
        A new 0-dimensional tensor, in the dtype that PyTorch promotes a's and b's to; 0 for no
        elements. a and b are read once, without a temporary of their size unless they have to be
        broadcast, converted or made contiguous. The squares are not scaled: they must not overflow
        the type that they are accumulated in. The order of the additions depends only on the number
        of elements: the same input gives the same bits for any number of threads and on any GPU.

    The gradients are grad * (a - b) / norm and its negative, each summed over the dimensions that
    were broadcast. They are 0 if the norm is 0, as for torch.linalg.vector_norm(a - b). They can be
    differentiated again. There is no forward-mode derivative.

    Raises:
        TypeError: an argument is not a tensor, or is missing.
        NotImplementedError: the dtype, layout or device is not supported, or a forward-mode
            derivative is requested.
        RuntimeError: the devices differ, the shapes do not broadcast, or a tensor is on CUDA and
            the build has no CUDA code.
    """


@differentiable(
    "two_norm_backward(Tensor grad, Tensor a, Tensor b, Tensor norm) -> (Tensor da, Tensor db)",
    build_of=two_norm,
    function="backward",
    saves=["grad", "a", "b", "norm"],
    fake=lambda grad, a, b, norm: (elementwise_fake(a, b), elementwise_fake(a, b)),
    vmap=loop_vmap,
    sharding="elementwise",
    linear=["grad"],
)
def two_norm_backward(grad, a, b, norm):
    """Returns two_norm's gradients of a and b; it reads both once."""


@differentiable(
    "two_norm_backward_of_a(Tensor grad, Tensor a, Tensor b, Tensor norm) -> Tensor",
    build_of=two_norm,
    function="backward_of_a",
    saves=["grad", "a", "b", "norm"],
    fake=lambda grad, a, b, norm: elementwise_fake(a, b),
    vmap=loop_vmap,
    sharding="elementwise",
    linear=["grad"],
)
def two_norm_backward_of_a(grad, a, b, norm):
    """Returns two_norm's gradient of a."""


@two_norm.gradient
def _(grad, a, b, norm, needs):
    if all(needs):
        return two_norm_backward(grad, a, b, norm)
    return (
        lambda: two_norm_backward_of_a(grad, a, b, norm),
        lambda: two_norm_backward_of_a(grad, b, a, norm),
    )


@two_norm_backward.gradient
def _(grad_da, grad_db, grad, a, b, norm):
    return second_gradients(grad_da - grad_db, grad, a, b, norm)


@two_norm_backward_of_a.gradient
def second_gradients(grad_da, grad, a, b, norm):
    """Returns the gradients with respect to grad, a, b and norm.

    They are those of sum(grad_da * grad * (a - b) / norm). If the norm is 0, they and all higher
    derivatives are 0, since infinity takes its place in the divisions.
    """
    norm = norm.masked_fill(norm == 0, torch.inf)
    inner = (grad_da * (a - b)).sum() / norm
    outer = grad_da * (grad / norm)
    return inner, lambda: outer, lambda: -outer, lambda: -grad * inner / norm
