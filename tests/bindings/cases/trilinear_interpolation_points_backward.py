"""The Case of trilinear_interpolation_points_backward."""

import numpy as np
import torch
from hypothesis import strategies as st

from bindings.trilinear_interpolation import trilinear_interpolation_points_backward
from tests.bindings.case import Case, unit
from tests.bindings.cases.trilinear_interpolation import (
    CORNERS,
    FEATS,
    POINTS,
    SIZES,
    spread,
)


def reference(grad, feats, points):
    at = (points + 1) / 2

    def slope_of_weight(corner, by):
        factors = [at[:, d] if corner[d] else 1 - at[:, d] for d in range(3) if d != by]
        return (0.5 if corner[by] else -0.5) * factors[0] * factors[1]

    slopes = np.array([[slope_of_weight(c, by) for by in range(3)] for c in CORNERS])
    return np.einsum("kdn,nkf,nf->nd", slopes, feats, grad)


def error(dtype, grad, feats, points):
    """Bounds the error of a sum of F terms: a few units for each term and for each addition."""
    size = (np.abs(grad) * np.abs(feats).sum(axis=1)).sum(axis=1, keepdims=True)
    return (32 + grad.shape[1] / 8) * unit(dtype) * spread(points) * size


def draw(position, shape, dtype, device):
    values = torch.randn(shape) if position < 2 else 2.4 * torch.rand(shape) - 1.2
    return values.to(device, dtype)


def shapes(n, f):
    return (n, f), (n, 8, f), (n, 3)


GRAD = torch.ones(4, 2)

CASE = Case(
    op=trilinear_interpolation_points_backward,
    reference=reference,
    error=error,
    shapes=[shapes(n, f) for n, f in SIZES],
    any_shapes=st.builds(shapes, st.integers(0, 5), st.integers(0, 20)),
    large=shapes(9001, 67),
    draw=draw,
    saved_rounding=16.0,  # its gradient is a sum of differences of rounded results
    bad_calls={
        "list": ((GRAD, FEATS, [[0.0, 0.0, 0.0]]), TypeError, ["'points'", "list"]),
        "other F": ((GRAD[:, :1], FEATS, POINTS), RuntimeError, ["'grad'", "[4, 1]", "[4, 2]"]),
        "7 corners": ((GRAD, FEATS[:, :7], POINTS), RuntimeError, ["'feats'", "[4, 7, 2]"]),
        "fewer points": ((GRAD, FEATS, POINTS[1:]), RuntimeError, ["'points'", "[3, 3]"]),
    },
    vmap_of=4,
    vmap_dims=[(0, 0, 0), (0, None, None), (None, 1, 0), (2, 0, None)],
)
