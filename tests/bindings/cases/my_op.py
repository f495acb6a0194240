"""The Case of my_op."""

import numpy as np
import torch

from bindings.my_op import MyOp, my_op
from tests.bindings.case import Case, unit
from tests.bindings.cases import add2

CASE = Case(
    op=my_op,
    reference=lambda x, y: 3 * x - y,
    error=lambda dtype, x, y: unit(dtype) * (3 * np.abs(x) + np.abs(y)),
    shapes=add2.CASE.shapes,
    any_shapes=add2.CASE.any_shapes,
    large=add2.CASE.large,
    broadcasts=True,
    promotes=True,
    bad_calls={
        "shapes": ((torch.ones(5), torch.ones(2, 4)), RuntimeError, ["[5]", "[2, 4]", "broadcast"]),
    },
    module=MyOp,
    vmap_of=add2.CASE.vmap_of,
    vmap_dims=add2.CASE.vmap_dims,
)
