"""The Case of two_norm."""

import numpy as np
import torch

from bindings.two_norm import two_norm
from tests.bindings.case import Case, unit
from tests.bindings.cases import add2


def reference(a, b):
    return np.sqrt(np.sum((a - b) ** 2))


CASE = Case(
    op=two_norm,
    reference=reference,
    error=lambda dtype, a, b: 8 * unit(dtype) * reference(a, b),
    shapes=add2.CASE.shapes,
    any_shapes=add2.CASE.any_shapes,
    large=add2.CASE.large,
    promotes=True,
    bad_calls={
        "shapes": ((torch.ones(5), torch.ones(2, 4)), RuntimeError, ["[5]", "[2, 4]", "broadcast"]),
    },
    saved_rounding=1.0,  # the gradient is divided by the rounded norm
    vmap_of=add2.CASE.vmap_of,
    vmap_dims=add2.CASE.vmap_dims,
)
