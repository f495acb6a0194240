"""The Cases of trilinear_interpolation and of its two gradients."""

import functools
import itertools

import numpy as np
import torch
from hypothesis import strategies as st

from bindings import trilinear_interpolation as ops
from tests.bindings.case import Case, unit

CORNERS = list(itertools.product([0, 1], repeat=3))
SIZES = [
    *((0, 3), (3, 0), (0, 0), (1, 1), (3, 2), (5, 3)),
    *((7, 4), (4, 8), (3, 33), (2, 64), (2, 545), (2, 1030)),
]
GRAD, FEATS, POINTS = torch.ones(4, 2), torch.ones(4, 8, 2), torch.zeros(4, 3)
NO_POINTS = ["'points'", "[3, 3]", "[4, 3]"]


def weights(points):
    """Returns each corner's weight at each point, of shape (N, 8)."""
    at = (points + 1) / 2
    return np.stack(
        [np.prod([at[:, d] if c[d] else 1 - at[:, d] for d in range(3)], axis=0) for c in CORNERS],
        axis=1,
    )


def spread(points):
    """Returns the sum of the absolute weights at each point, of shape (N, 1): 1 within the cell."""
    at = (points + 1) / 2
    return np.prod(np.abs(at) + np.abs(1 - at), axis=1)[:, None]


def points_gradient(grad, feats, points):
    at = (points + 1) / 2

    def slope_of_weight(corner, by):
        factors = [at[:, d] if corner[d] else 1 - at[:, d] for d in range(3) if d != by]
        return (0.5 if corner[by] else -0.5) * factors[0] * factors[1]

    slopes = np.array([[slope_of_weight(c, by) for by in range(3)] for c in CORNERS])
    return np.einsum("kdn,nkf,nf->nd", slopes, feats, grad)


def error_of_points_gradient(dtype, grad, feats, points):
    """Bounds the error of a sum of F terms: a few units for each term and for each addition."""
    size = (np.abs(grad) * np.abs(feats).sum(axis=1)).sum(axis=1, keepdims=True)
    return (32 + grad.shape[1] / 8) * unit(dtype) * spread(points) * size


def shapes_of(arguments, n, f):
    return tuple({"grad": (n, f), "feats": (n, 8, f), "points": (n, 3)}[a] for a in arguments)


def draw(arguments, position, shape, dtype, device):
    """Returns normal values, or points up to a tenth of a cell outside of the cell."""
    is_points = arguments[position] == "points"
    return (2.4 * torch.rand(shape) - 1.2 if is_points else torch.randn(shape)).to(device, dtype)


def case(op, arguments, **more):
    shapes = functools.partial(shapes_of, arguments)
    return Case(
        op=op,
        shapes=[shapes(n, f) for n, f in SIZES],
        any_shapes=st.builds(shapes, st.integers(0, 5), st.integers(0, 20)),
        large=shapes(9001, 67),
        draw=functools.partial(draw, arguments),
        vmap_of=4,
        **more,
    )


CASES = [
    case(
        ops.trilinear_interpolation,
        ("feats", "points"),
        reference=lambda feats, points: np.einsum("nk,nkf->nf", weights(points), feats),
        error=lambda dtype, feats, points: (
            16 * unit(dtype) * spread(points) * np.abs(feats).sum(axis=1)
        ),
        promotes=True,
        bad_calls={
            "rank 2": ((FEATS[0], POINTS), RuntimeError, ["'feats'", "[8, 2]", "(N, 8, F)"]),
            "rank 0": ((torch.ones(()), POINTS), RuntimeError, ["'feats'", "[]"]),
            "7 corners": ((FEATS[:, :7], POINTS), RuntimeError, ["'feats'", "[4, 7, 2]"]),
            "points of rank 1": ((FEATS, POINTS[0]), RuntimeError, ["'points'", "[3]", "[4, 3]"]),
            "2 coordinates": ((FEATS, POINTS[:, :2]), RuntimeError, ["'points'", "[4, 2]"]),
            "fewer points": ((FEATS, POINTS[1:]), RuntimeError, NO_POINTS),
        },
        module=ops.TrilinearInterpolation,
        vmap_dims=[(0, 0), (0, None), (None, 1), (2, 0)],
    ),
    case(
        ops.trilinear_interpolation_feats_backward,
        ("grad", "points"),
        reference=lambda grad, points: np.einsum("nk,nf->nkf", weights(points), grad),
        error=lambda dtype, grad, points: (
            16 * unit(dtype) * (spread(points) * np.abs(grad))[:, None, :]
        ),
        bad_calls={
            "grad of rank 1": ((GRAD[0], POINTS), RuntimeError, ["'grad'", "[2]", "(N, F)"]),
            "fewer points": ((GRAD, POINTS[1:]), RuntimeError, NO_POINTS),
        },
        vmap_dims=[(0, 0), (0, None), (None, 1), (2, 0)],
    ),
    case(
        ops.trilinear_interpolation_points_backward,
        ("grad", "feats", "points"),
        reference=points_gradient,
        error=error_of_points_gradient,
        saved_rounding=16.0,  # its gradient is a sum of differences of rounded results
        bad_calls={
            "other F": ((GRAD[:, :1], FEATS, POINTS), RuntimeError, ["'grad'", "[4, 1]", "[4, 2]"]),
            "7 corners": ((GRAD, FEATS[:, :7], POINTS), RuntimeError, ["'feats'", "[4, 7, 2]"]),
            "fewer points": ((GRAD, FEATS, POINTS[1:]), RuntimeError, NO_POINTS),
        },
        vmap_dims=[(0, 0, 0), (0, None, None), (None, 1, 0), (2, 0, None)],
    ),
]
