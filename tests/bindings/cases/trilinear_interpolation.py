"""The Case of trilinear_interpolation."""

import itertools

import numpy as np
import torch
from hypothesis import strategies as st

from bindings.trilinear_interpolation import TrilinearInterpolation, trilinear_interpolation
from tests.bindings.case import Case, unit

CORNERS = list(itertools.product([0, 1], repeat=3))


def weights(points):
    """Returns each corner's weight at each point, of shape (N, 8)."""
    at = (points + 1) / 2
    return np.stack(
        [np.prod([at[:, d] if c[d] else 1 - at[:, d] for d in range(3)], axis=0) for c in CORNERS],
        axis=1,
    )


def reference(feats, points):
    return np.einsum("nk,nkf->nf", weights(points), feats)


def spread(points):
    """Returns the sum of the absolute weights at each point, of shape (N, 1): 1 within the cell."""
    at = (points + 1) / 2
    return np.prod(np.abs(at) + np.abs(1 - at), axis=1)[:, None]


def draw(position, shape, dtype, device):
    """Returns normal feats, or points up to a tenth of a cell outside of the cell."""
    values = torch.randn(shape) if position == 0 else 2.4 * torch.rand(shape) - 1.2
    return values.to(device, dtype)


def shapes(n, f):
    return (n, 8, f), (n, 3)


FEATS, POINTS = torch.ones(4, 8, 2), torch.zeros(4, 3)
SIZES = [
    (0, 3),
    (3, 0),
    (0, 0),
    (1, 1),
    (3, 2),
    (5, 3),
    (7, 4),
    (4, 8),
    (3, 33),
    (2, 64),
    (2, 545),
    (2, 1030),
]

CASE = Case(
    op=trilinear_interpolation,
    reference=reference,
    error=lambda dtype, feats, points: (
        16 * unit(dtype) * spread(points) * np.abs(feats).sum(axis=1)
    ),
    shapes=[shapes(n, f) for n, f in SIZES],
    any_shapes=st.builds(shapes, st.integers(0, 5), st.integers(0, 20)),
    large=shapes(9001, 67),
    draw=draw,
    promotes=True,
    bad_calls={
        "list": ((FEATS, [[0.0, 0.0, 0.0]]), TypeError, ["'points'", "list"]),
        "none": ((None, POINTS), TypeError, ["'feats'", "NoneType"]),
        "integer": ((FEATS, POINTS.int()), NotImplementedError, ["'points'", "Int"]),
        "feats of rank 2": ((FEATS[0], POINTS), RuntimeError, ["'feats'", "[8, 2]", "(N, 8, F)"]),
        "feats of rank 0": ((torch.ones(()), POINTS), RuntimeError, ["'feats'", "[]"]),
        "7 corners": ((FEATS[:, :7], POINTS), RuntimeError, ["'feats'", "[4, 7, 2]"]),
        "points of rank 1": ((FEATS, POINTS[0]), RuntimeError, ["'points'", "[3]", "[4, 3]"]),
        "2 coordinates": ((FEATS, POINTS[:, :2]), RuntimeError, ["'points'", "[4, 2]", "[4, 3]"]),
        "fewer points": ((FEATS, POINTS[1:]), RuntimeError, ["'points'", "[3, 3]", "[4, 3]"]),
    },
    module=TrilinearInterpolation,
    vmap_of=4,
    vmap_dims=[(0, 0), (0, None), (None, 1), (2, 0)],
)
