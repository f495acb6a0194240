"""The Cases of the ops of one tensor, and of two tensors that broadcast."""

import numpy as np
import torch
from hypothesis.extra.numpy import array_shapes, mutually_broadcastable_shapes

from bindings.add2 import add2
from bindings.my_op import MyOp, my_op
from bindings.sigmoid import Sigmoid, sigmoid
from bindings.sum_single import sum_single
from bindings.two_norm import two_norm
from tests.bindings.case import Case, unit

SHAPES = [(), (1,), (0,), (3, 0, 2), (7,), (64,), (1023,), (4, 5)]
ONE = {
    "shapes": [(shape,) for shape in SHAPES],
    "any_shapes": array_shapes(min_dims=0, min_side=0, max_side=7).map(lambda shape: (shape,)),
    "large": ((300_001,),),
    "vmap_of": 7,
    "vmap_dims": [(0,), (1,), (-1,)],
}
TWO = {
    "shapes": [
        *((shape, shape) for shape in [*SHAPES, (2, 3, 4, 5)]),
        *(((3, 1), (1, 4)), ((2, 3), (3,)), ((), (2,))),
    ],
    "any_shapes": mutually_broadcastable_shapes(num_shapes=2, min_side=0, max_side=6).map(
        lambda shapes: shapes.input_shapes
    ),
    "large": ((300_001,), (300_001,)),
    "promotes": True,
    "bad_calls": {
        "shapes": ((torch.ones(5), torch.ones(2, 4)), RuntimeError, ["[5]", "[2, 4]", "broadcast"])
    },
    "vmap_of": 7,
    "vmap_dims": [(0, 0), (0, None), (None, 1), (2, 0)],
}


def exact_sigmoid(x):
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


def exact_norm(a, b):
    return np.sqrt(np.sum((a - b) ** 2))


CASES = [
    Case(add2, lambda a, b: a + b, lambda dtype, a, b: 0.0, broadcasts=True, **TWO),
    Case(
        my_op,
        lambda x, y: 3 * x - y,
        lambda dtype, x, y: unit(dtype) * (3 * np.abs(x) + np.abs(y)),
        broadcasts=True,
        module=MyOp,
        **TWO,
    ),
    # The exponential, the sum, the quotient and the product each round once or twice.
    Case(
        sigmoid,
        exact_sigmoid,
        lambda dtype, x: 4 * unit(dtype) * exact_sigmoid(x),
        saved_rounding=4.0,  # the gradient is multiplied by 1 - y, and y is rounded
        module=Sigmoid,
        **ONE,
    ),
    Case(sum_single, np.sum, lambda dtype, x: 8 * unit(dtype) * np.sum(np.abs(x)), **ONE),
    Case(
        two_norm,
        exact_norm,
        lambda dtype, a, b: 8 * unit(dtype) * exact_norm(a, b),
        saved_rounding=1.0,  # the gradient is divided by the rounded norm
        **TWO,
    ),
]
