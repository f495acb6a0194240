"""Tests particular to trilinear_interpolation and its gradients."""

import pytest
import torch

from bindings.trilinear_interpolation import (
    trilinear_interpolation,
    trilinear_interpolation_feats_backward,
    trilinear_interpolation_points_backward,
)
from tests.bindings.case import assert_is_right
from tests.bindings.cases.trilinear_interpolation import CASES, shapes_of


@pytest.fixture
def compiled():
    return trilinear_interpolation.build.module


def draw(n, f, dtype=torch.float32, device="cpu"):
    """Returns random grad, feats and points."""
    grad, feats = torch.randn(n, f), torch.randn(n, 8, f)
    return tuple(x.to(device, dtype) for x in (grad, feats, 2 * torch.rand(n, 3) - 1))


# Around the size of a tile or block, and more rows or columns than a grid has in y.
SIZES = [
    *((3, f) for f in (511, 512, 513, 2048, 4099)),
    *((1_048_577, 1), (1_048_577, 4), (1, 1_048_577), (2, 1_048_580)),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_sizes_around_the_limits_of_the_kernels_are_right(case, size, dtype, device):
    if device == "cpu":  # the CPU has no grid
        size = tuple(n // 16 if n > 5000 else n for n in size)
    arguments = case.arguments(shapes_of(case.op.op.parameters, *size), dtype, device)
    assert_is_right(case, case.op(*arguments), arguments)


def test_other_functions_of_the_compiled_module_match_the_op(compiled, dtype, device):
    grad, feats, points = draw(9, 5, dtype, device)
    result = trilinear_interpolation(feats, points)
    assert torch.equal(compiled.trilinearinterpolation(feats, points), result)
    assert torch.equal(compiled.trilinearinterpolation(points=points, feats=feats), result)
    dfeats = trilinear_interpolation_feats_backward(grad, points)
    dpoints = trilinear_interpolation_points_backward(grad, feats, points)
    assert torch.equal(compiled.trilinearinterpolation_bw(grad, feats, points), dfeats)
    assert all(map(torch.equal, compiled.backward(grad, feats, points), (dfeats, dpoints)))
    for function in [compiled.backward, compiled.trilinearinterpolation]:
        assert "(N, 8, F)" in function.__doc__


def test_trilinearinterpolation_bw_checks_its_arguments(compiled):
    grad, feats, points = draw(4, 5)
    for arguments, words in [
        ((grad[1:], feats, points), ["trilinearinterpolation_bw", "'grad'", "[3, 5]", "[4, 5]"]),
        ((grad, feats[:, 1:], points), ["trilinearinterpolation_bw", "'feats'", "[4, 7, 5]"]),
        ((grad, feats, points[1:]), ["'points'", "[3, 3]", "[4, 3]"]),
    ]:
        with pytest.raises(RuntimeError) as caught:
            compiled.trilinearinterpolation_bw(*arguments)
        assert all(word in str(caught.value) for word in words), caught.value


def test_shapes_of_meta_tensors_are_checked():
    _, feats, points = (x.to("meta") for x in draw(4, 5))
    assert trilinear_interpolation(feats, points).shape == (4, 5)
    with pytest.raises(RuntimeError, match=r"'feats' has shape \[4, 7, 5\]"):
        trilinear_interpolation(feats[:, 1:], points)
    with pytest.raises(RuntimeError, match=r"'points' has shape \[3, 3\]"):
        trilinear_interpolation(feats, points[1:])
