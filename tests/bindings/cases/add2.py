"""The Case of add2."""

import torch
from hypothesis.extra.numpy import mutually_broadcastable_shapes

from bindings.add2 import add2
from tests.bindings.case import Case

FIVE = torch.ones(5)
SHAPES = [(), (1,), (0,), (3, 0, 2), (7,), (64,), (4, 5), (2, 3, 4, 5), (1023,)]

CASE = Case(
    op=add2,
    reference=lambda a, b: a + b,
    error=lambda dtype, a, b: 0.0,
    shapes=[(shape, shape) for shape in SHAPES] + [((3, 1), (1, 4)), ((2, 3), (3,)), ((), (2,))],
    any_shapes=mutually_broadcastable_shapes(num_shapes=2, min_side=0, max_side=6).map(
        lambda shapes: shapes.input_shapes
    ),
    large=((300_001,), (300_001,)),
    broadcasts=True,
    promotes=True,
    bad_calls={
        "shapes": ((FIVE, torch.ones(2, 4)), RuntimeError, ["[5]", "[2, 4]", "broadcast"]),
    },
    vmap_of=6,
    vmap_dims=[(0, 0), (0, None), (None, 1), (2, 0)],
)
