"""Tests of NAME: results and gradients, on the CPU and, if present, a GPU."""

import sys
from pathlib import Path

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder of bindings/

import jit_loader

from bindings.NAME import NAME

HAS_GPU = torch.cuda.is_available() and jit_loader.loaded("NAME").with_cuda
each_device = pytest.mark.parametrize("device", ["cpu", "cuda"] if HAS_GPU else ["cpu"])
each_dtype = pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str
)
SHAPES = [((), ()), ((0,), (0,)), ((7,), (7,)), ((3, 1), (4,)), ((300_001,), (300_001,))]


@each_device
@each_dtype
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_agrees_with_pytorch(shapes, dtype, device):
    a, b = (torch.randn(shape, dtype=dtype, device=device) for shape in shapes)
    torch.testing.assert_close(NAME(a, b), a * b)


@each_device
def test_any_strides_and_dtypes(device):
    a = torch.randn(6, 8, device=device)[::2, 1:].t()
    b = torch.randn(7, 3, device=device, dtype=torch.float64)
    torch.testing.assert_close(NAME(a, b), a * b)


@each_device
@pytest.mark.parametrize("shapes", [((3, 5), (3, 5)), ((3, 1), (4,))], ids=str)
def test_gradients(shapes, device):
    a, b = (
        torch.randn(shape, dtype=torch.float64, device=device, requires_grad=True)
        for shape in shapes
    )
    assert gradcheck(NAME, (a, b))
    assert gradgradcheck(NAME, (a, b))


@each_device
def test_registered_for_torch_compile(device):
    a, b = (torch.randn(3, 5, device=device, requires_grad=True) for _ in range(2))
    torch.library.opcheck(torch.ops.jit_loader.NAME.default, (a, b))


def test_bad_arguments_are_refused():
    x = torch.ones(3)
    with pytest.raises(NotImplementedError, match="NAME"):
        NAME(x, x.to(torch.int64))
    with pytest.raises(TypeError, match="NAME"):
        NAME(x, [1.0, 2.0, 3.0])
    with pytest.raises(RuntimeError, match="NAME"):
        NAME(x, torch.ones(2))
