"""Operations on rows take any formula and any width; the template of `new` has a softmax."""

import ctypes
from pathlib import Path

import pytest
import torch

SOURCE = Path(__file__).parent / "rows.cpp"


@pytest.fixture(scope="module")
def library(library_of):
    return library_of(SOURCE)


@pytest.mark.parametrize("dtype", ["float", "double"])
@pytest.mark.parametrize("width", [1, 31, 32, 1000, 4097, 300_001])
def test_norm_of_rows(library, dtype, width):
    x = torch.randn(3, width, dtype=getattr(torch, dtype))
    y = torch.empty_like(x)
    pointers = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (y, x))
    getattr(library, f"norm_{dtype}")(*pointers, ctypes.c_int64(3), ctypes.c_int64(width))
    torch.testing.assert_close(y, torch.nn.functional.rms_norm(x, (width,), eps=1e-6))
