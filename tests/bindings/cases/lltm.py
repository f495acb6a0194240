"""The Case of lltm."""

import numpy as np
import torch
from hypothesis import strategies as st

from bindings.lltm import lltm
from tests.bindings.case import Case, unit


def shapes(batch, features, state, flat_bias=False):
    bias = (3 * state,) if flat_bias else (1, 3 * state)
    return ((batch, features), (3 * state, state + features), bias, (batch, state), (batch, state))


def draw(position, shape, dtype, device):
    # Small weights, so that most gates are not saturated.
    scale = 0.3 if position == 1 else 1.0
    return (scale * torch.randn(shape, dtype=torch.float64)).to(device, dtype)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gates_of(input, weights, bias, old_h):
    gates = np.concatenate([old_h, input], 1) @ weights.T + bias.reshape(1, -1)
    return np.split(gates, 3, axis=1)


def reference(input, weights, bias, old_h, old_cell):
    g0, g1, g2 = gates_of(input, weights, bias, old_h)
    candidate = np.where(g2 > 0, g2, np.expm1(np.minimum(g2, 0)))
    new_cell = old_cell + candidate * sigmoid(g0)
    return np.tanh(new_cell) * sigmoid(g1), new_cell


def error(dtype, input, weights, bias, old_h, old_cell):
    """Bounds the errors. A gate is a sum, in any order, which is then rounded to the dtype."""
    g0, _, g2 = gates_of(input, weights, bias, old_h)
    sizes = gates_of(*map(np.abs, (input, weights, bias, old_h)))
    terms = weights.shape[1] + 2
    rounded = 0.0 if dtype in (torch.float64, torch.float32) else torch.finfo(dtype).eps
    e0, e1, e2 = ((terms * unit(dtype) + rounded) * size for size in sizes)
    candidate = np.where(g2 > 0, g2, 1)
    in_cell = sigmoid(g0) * e2 + candidate * e0 / 4
    in_cell = in_cell + 8 * unit(dtype) * (candidate + np.abs(old_cell))
    return in_cell + e1 / 4 + 8 * unit(dtype), in_cell


GOOD = [torch.ones(shape) for shape in shapes(2, 3, 4)]


def bad(position, value):
    return (*GOOD[:position], value, *GOOD[position + 1 :])


CASE = Case(
    op=lltm,
    reference=reference,
    error=error,
    shapes=[
        shapes(1, 1, 1),
        shapes(0, 3, 2),
        shapes(3, 2, 0),
        shapes(2, 0, 3, flat_bias=True),
        shapes(16, 32, 128),
        shapes(70, 5, 67, flat_bias=True),
        shapes(3, 2, 4),
    ],
    any_shapes=st.builds(
        shapes, st.integers(0, 6), st.integers(0, 6), st.integers(0, 6), st.booleans()
    ),
    large=shapes(300, 20, 129),
    draw=draw,
    gradient_units=32.0,
    saved_rounding=8.0,  # gates and their gradients are rounded between the products
    bad_calls={
        "dtypes": (
            bad(1, GOOD[1].double()),
            TypeError,
            ["'input'", "float32", "'weights'", "float64"],
        ),
        "rank": (bad(0, torch.ones(3)), RuntimeError, ["'input'", "[3]", "2 dimensions"]),
        "batch": (bad(3, torch.ones(1, 4)), RuntimeError, ["'old_h'", "[1, 4]", "[2, 4]"]),
        "cell": (bad(4, torch.ones(2, 5)), RuntimeError, ["'old_cell'", "[2, 5]", "[2, 4]"]),
        "weights": (bad(1, torch.ones(12, 6)), RuntimeError, ["'weights'", "[12, 6]", "[12, 7]"]),
        "bias": (bad(2, torch.ones(4)), RuntimeError, ["'bias'", "[4]", "[12]"]),
        "bias 2-d": (bad(2, torch.ones(12, 1)), RuntimeError, ["'bias'", "[12, 1]", "[1, 12]"]),
    },
    vmap_of=6,
    vmap_dims=[(0, None, None, 0, 0), (None, 0, None, 1, -1), (1, 2, 0, 0, None)],
)
