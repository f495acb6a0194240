"""The Case of sum_single."""

import numpy as np
from hypothesis.extra.numpy import array_shapes

from bindings.sum_single import sum_single
from tests.bindings.case import Case, unit

CASE = Case(
    op=sum_single,
    reference=lambda x: np.sum(x),
    error=lambda dtype, x: 8 * unit(dtype) * np.sum(np.abs(x)),
    shapes=[((),), ((1,),), ((0,),), ((3, 0, 2),), ((7,),), ((64,),), ((1023,),), ((4, 5),)],
    any_shapes=array_shapes(min_dims=0, min_side=0, max_side=7).map(lambda shape: (shape,)),
    large=((300_001,),),
    vmap_of=7,
    vmap_dims=[(0,), (1,), (-1,)],
)
