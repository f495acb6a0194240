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


def expected(x):
    return EXPRESSION


@each_device
@each_dtype
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 5), (300_001,)], ids=str)
def test_agrees_with_pytorch(shape, dtype, device):
    # Small numbers, because the sum must not overflow float16.
    x = torch.randn(shape, dtype=dtype, device=device) / 8
    torch.testing.assert_close(NAME(x), expected(x.double()).to(dtype))


@each_device
def test_any_strides(device):
    x = torch.randn(6, 8, device=device)[::2, 1:].t()
    torch.testing.assert_close(NAME(x), expected(x))


@each_device
def test_gradients(device):
    x = torch.randn(3, 5, dtype=torch.float64, device=device, requires_grad=True)
    assert gradcheck(NAME, (x,))
    assert gradgradcheck(NAME, (x,))


@each_device
def test_registered_for_torch_compile(device):
    x = torch.randn(3, 5, device=device, requires_grad=True)
    torch.library.opcheck(torch.ops.jit_loader.NAME.default, (x,))


def test_only_floating_tensors_are_accepted():
    with pytest.raises(NotImplementedError, match="NAME"):
        NAME(torch.ones(3, dtype=torch.int64))
    with pytest.raises(TypeError, match="NAME"):
        NAME([1.0, 2.0])
