"""The case of NAME in the tests that all ops share."""

import numpy as np
import torch
from hypothesis.extra.numpy import array_shapes

from bindings.NAME import NAME
from tests.bindings.case import Case, unit


def small_numbers(_position, shape, dtype, device):
    """Draws from a normal distribution; with variance 1, not 1/64, the sum overflows float16."""
    return (torch.randn(shape, dtype=torch.float64) / 8).to(device, dtype)


CASE = Case(
    op=NAME,
    reference=lambda x: np.sum(x * x),
    error=lambda dtype, x: 8 * unit(dtype) * np.sum(x * x),
    shapes=[((),), ((1,),), ((0,),), ((3, 0, 2),), ((7,),), ((64,),), ((1023,),), ((4, 5),)],
    any_shapes=array_shapes(min_dims=0, min_side=0, max_side=7).map(lambda shape: (shape,)),
    large=((300_001,),),
    bad_calls={
        "list": (([1.0],), TypeError, ["'x'", "list"]),
        "none": ((None,), TypeError, ["'x'", "NoneType"]),
    },
    draw=small_numbers,
    vmap_of=7,
    vmap_dims=[(0,), (1,), (-1,)],
)
