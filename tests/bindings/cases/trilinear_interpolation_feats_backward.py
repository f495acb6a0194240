"""The Case of trilinear_interpolation_feats_backward."""

import numpy as np
import torch
from hypothesis import strategies as st

from bindings.trilinear_interpolation import trilinear_interpolation_feats_backward
from tests.bindings.case import Case, unit
from tests.bindings.cases.trilinear_interpolation import POINTS, SIZES, draw, spread, weights


def reference(grad, points):
    return np.einsum("nk,nf->nkf", weights(points), grad)


def shapes(n, f):
    return (n, f), (n, 3)


GRAD = torch.ones(4, 2)

CASE = Case(
    op=trilinear_interpolation_feats_backward,
    reference=reference,
    error=lambda dtype, grad, points: (
        16 * unit(dtype) * (spread(points) * np.abs(grad))[:, None, :]
    ),
    shapes=[shapes(n, f) for n, f in SIZES],
    any_shapes=st.builds(shapes, st.integers(0, 5), st.integers(0, 20)),
    large=shapes(9001, 67),
    draw=draw,
    bad_calls={
        "list": ((GRAD, [[0.0, 0.0, 0.0]]), TypeError, ["'points'", "list"]),
        "grad of rank 1": ((GRAD[0], POINTS), RuntimeError, ["'grad'", "[2]", "(N, F)"]),
        "fewer points": ((GRAD, POINTS[1:]), RuntimeError, ["'points'", "[3, 3]", "[4, 3]"]),
    },
    vmap_of=4,
    vmap_dims=[(0, 0), (0, None), (None, 1), (2, 0)],
)
