"""The case of NAME in the tests that all ops share."""

from hypothesis.extra.numpy import array_shapes

from bindings.NAME import NAME
from tests.bindings.case import Case

CASE = Case(
    op=NAME,
    reference=lambda x: EXPRESSION,
    error=lambda dtype, x: 0.0,  # in addition to the rounding of the result
    shapes=[((),), ((1,),), ((0,),), ((3, 0, 2),), ((7,),), ((64,),), ((1023,),), ((4, 5),)],
    any_shapes=array_shapes(min_dims=0, min_side=0, max_side=7).map(lambda shape: (shape,)),
    large=((300_001,),),
    bad_calls={
        "list": (([1.0],), TypeError, ["'x'", "list"]),
        "none": ((None,), TypeError, ["'x'", "NoneType"]),
    },
    vmap_of=7,
    vmap_dims=[(0,), (1,), (-1,)],
)
