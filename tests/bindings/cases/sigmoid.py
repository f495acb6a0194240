"""The Case of sigmoid."""

import numpy as np
from hypothesis.extra.numpy import array_shapes

from bindings.sigmoid import Sigmoid, sigmoid
from tests.bindings.case import Case, unit


def reference(x):
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


CASE = Case(
    op=sigmoid,
    reference=reference,
    # The exponential, the sum, the quotient and the product each round once or twice.
    error=lambda dtype, x: 4 * unit(dtype) * reference(x),
    shapes=[((),), ((1,),), ((0,),), ((3, 0, 2),), ((7,),), ((64,),), ((1023,),), ((4, 5),)],
    any_shapes=array_shapes(min_dims=0, min_side=0, max_side=7).map(lambda shape: (shape,)),
    large=((300_001,),),
    saved_rounding=4.0,  # the gradient is multiplied by 1 - y, and y is rounded
    module=Sigmoid,
    vmap_of=7,
    vmap_dims=[(0,), (1,), (-1,)],
)
