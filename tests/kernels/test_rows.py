"""Operations on rows take any formula and any width; the template of `new` has a softmax."""

import ctypes
from pathlib import Path

import pytest
import torch

SOURCE = Path(__file__).parent / "rows.cpp"


@pytest.mark.parametrize("dtype", ["float", "double"])
def test_norm_of_rows(library_of, dtype):
    norm = getattr(library_of(SOURCE), f"norm_{dtype}")
    for width in (1, 31, 32, 1000, 4097, 300_001):
        x = torch.randn(3, width, dtype=getattr(torch, dtype))
        y = torch.empty_like(x)
        pointers = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (y, x))
        norm(*pointers, ctypes.c_int64(3), ctypes.c_int64(width))
        torch.testing.assert_close(y, torch.nn.functional.rms_norm(x, (width,), eps=1e-6))
