"""The op lltm, one step of a recurrent cell with two gates and a tanh, and its nn.Module LLTM."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from .shared.defaults import loop_vmap
from .shared.differentiable import differentiable


def lltm_fake(input, weights, bias, old_h, old_cell):
    """Makes new_h, new_cell, x and gates without data, for torch.compile."""
    dtype = torch.promote_types(input.dtype, old_cell.dtype)
    batch, state = old_h.shape
    new_h, new_cell = (input.new_empty(batch, state, dtype=dtype) for _ in range(2))
    x = input.new_empty(batch, weights.shape[1])
    return new_h, new_cell, x, input.new_empty(batch, 3 * state, dtype=dtype)


@differentiable(
    "lltm(Tensor input, Tensor weights, Tensor bias, Tensor old_h, Tensor old_cell)"
    " -> (Tensor new_h, Tensor new_cell, Tensor x, Tensor gates)",
    results=2,
    saves=["input", "weights", "bias", "old_h", "old_cell", "new_cell", "x", "gates"],
    autocast=["input", "weights", "bias", "old_h"],
    fake=lltm_fake,
    vmap=loop_vmap,
)
def lltm(input, weights, bias, old_h, old_cell):
    """Returns (new_h, new_cell), one step of an LLTM for a batch, on CPU and CUDA.

    With S the size of the state, and i, o, c from the three thirds of each row of
    g = [old_h, input] @ weights.T + bias,

        i, o, c = sigmoid(g0), sigmoid(g1), elu(g2)
        new_cell = old_cell + c * i
        new_h = tanh(new_cell) * o

    >>> zeros = torch.zeros(2, 3)
    >>> lltm(torch.ones(2, 4), torch.zeros(9, 7), torch.zeros(9), zeros, zeros + 1)[1]
    tensor([[1., 1., 1.],
            [1., 1., 1.]])

    PyTorch computes the matrix products, with its settings for TF32 and the like; the rest is one
    kernel in each direction. The cell is that of PyTorch's tutorial on C++ extensions: an LSTM
    without a forget gate and with an ELU for the candidate.

    Args:
        input: the step's input, a tensor of shape (batch, features).
        weights: shape (3 * S, S + features): rows for i, o and c, columns for old_h, then input.
        bias: shape (3 * S) or (1, 3 * S).
        old_h, old_cell: the state before the step, of shape (batch, S).

    All have the same dtype (float64, float32, float16 or bfloat16) and device, and any strides.
    old_cell may have another of these dtypes; the results then have the dtype that PyTorch promotes
    the two to. 16-bit types are computed in float32; the matrix product and the results are
    rounded.

    Under torch.autocast the matrix products run in its dtype, as in PyTorch: input, weights, bias
    and old_h are cast to it. old_cell is not, so that a float32 cell stays float32.

    Returns:
        new_h and new_cell, new contiguous tensors of shape (batch, S).

    Every argument that needs a gradient gets that of the formula; it can be differentiated again.
    There is no forward-mode derivative.

    Raises:
        TypeError: an argument is not a tensor, is missing, or does not have the dtype of input.
        NotImplementedError: the dtype, layout or device is not supported, or a forward-mode
            derivative is requested.
        RuntimeError: a shape is not as above, the devices differ, or a tensor is on CUDA and the
            build has no CUDA code.
    """


def lltm_backward_fake(
    grad_h, grad_cell, input, weights, bias, old_h, old_cell, new_cell, x, gates, needs
):
    """Makes the gradients without data, for torch.compile."""

    def like(tensor, dtype):
        return tensor.new_empty(tensor.shape, dtype=dtype)

    gradients = (
        like(input, x.dtype),
        like(weights, x.dtype),
        like(bias, gates.dtype),
        like(old_h, x.dtype),
        like(old_cell, gates.dtype),
    )
    return tuple(gradient if need else None for gradient, need in zip(gradients, needs))


@differentiable(
    "lltm_backward(Tensor? grad_h, Tensor? grad_cell, Tensor input, Tensor weights, Tensor bias,"
    " Tensor old_h, Tensor old_cell, Tensor new_cell, Tensor x, Tensor gates, bool[5] needs)"
    " -> (Tensor d_input, Tensor d_weights, Tensor d_bias, Tensor d_old_h, Tensor d_old_cell)",
    build_of=lltm,
    function="backward",
    saves=["grad_h", "grad_cell", "input", "weights", "bias", "old_h", "old_cell"],
    fake=lltm_backward_fake,
    vmap=loop_vmap,
)
def lltm_backward(
    grad_h, grad_cell, input, weights, bias, old_h, old_cell, new_cell, x, gates, needs
):
    """Returns the gradients of lltm's arguments.

    `needs`, five bools, tells which are needed; the others are None. grad_h and grad_cell may be
    None, which stands for zeros. new_cell, x and gates are results of lltm. They depend on the
    other arguments, so the second derivative treats them as part of the formula, not as arguments.
    """


@lltm.gradient
def _(grad_h, grad_cell, *saved, needs):
    return lltm_backward(grad_h, grad_cell, *saved, needs)


def gradient_in_torch(grad_h, grad_cell, input, weights, bias, old_h, old_cell):
    """Returns lltm_backward's gradients, by operations that PyTorch can differentiate again."""
    x = torch.cat([old_h, input], dim=1)
    dtype = torch.promote_types(x.dtype, old_cell.dtype)
    g0, g1, g2 = F.linear(x, weights, bias.flatten()).to(dtype).chunk(3, dim=1)
    i, o, c = torch.sigmoid(g0), torch.sigmoid(g1), F.elu(g2)
    t = torch.tanh(old_cell + c * i)
    d_cell = (1 - t * t) * (o * grad_h) + grad_cell
    d_gates = torch.cat(
        [
            c * d_cell * (i * (1 - i)),
            t * grad_h * (o * (1 - o)),
            i * d_cell * torch.exp(g2.clamp(max=0)),
        ],
        dim=1,
    )
    d_bias = d_gates.sum(0).view(bias.shape)
    d_product = d_gates.to(x.dtype)
    d_x = d_product @ weights
    d_old_h, d_input = d_x[:, : old_h.shape[1]], d_x[:, old_h.shape[1] :]
    return d_input, d_product.T @ x, d_bias, d_old_h, d_cell


@lltm_backward.gradient
def _(d_input, d_weights, d_bias, d_old_h, d_old_cell, grad_h, grad_cell, *arguments):
    grads = [torch.zeros_like(arguments[-1]) if g is None else g for g in (grad_h, grad_cell)]
    results, vjp = torch.func.vjp(gradient_in_torch, *grads, *arguments)
    given = (d_input, d_weights, d_bias, d_old_h, d_old_cell)
    gradients = vjp(
        tuple(torch.zeros_like(r) if g is None else g.to(r.dtype) for g, r in zip(given, results))
    )
    return (*gradients, None, None, None, None)


class LLTM(nn.Module):
    """A module whose parameters are lltm's weights and bias: module(input, (old_h, old_cell)).

    weights (3 * state_size, state_size + input_features) and bias (1, 3 * state_size) have
    PyTorch's default dtype and are uniform in +-1 / sqrt(state_size). A negative size is a
    ValueError.
    """

    def __init__(self, input_features, state_size):
        super().__init__()
        if input_features < 0 or state_size < 0:
            raise ValueError(f"LLTM({input_features}, {state_size}): a size must not be negative")
        self.input_features = input_features
        self.state_size = state_size
        self.weights = nn.Parameter(torch.empty(3 * state_size, state_size + input_features))
        self.bias = nn.Parameter(torch.empty(1, 3 * state_size))
        self.reset_parameters()

    def reset_parameters(self):
        """Draws new values for the parameters."""
        bound = 1 / math.sqrt(max(self.state_size, 1))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, input, state):
        """Returns (new_h, new_cell) of shape (batch, state_size)."""
        return lltm(input, self.weights, self.bias, *state)

    def extra_repr(self):
        return f"{self.input_features}, {self.state_size}"
