"""The reductions give the same result for any split into ranges."""

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
GUARD = 123.0


@pytest.fixture(scope="module")
def library(compiler, tmp_path_factory):
    path = tmp_path_factory.mktemp("reductions") / "reductions.so"
    names = [
        "tests/kernels/reductions.cpp",
        "kernels/sum_single_cpu.cpp",
        "kernels/two_norm_cpu.cpp",
    ]
    sources = [str(ROOT / name) for name in names]
    subprocess.run([*compiler, "-O3", "-shared", "-fPIC", *sources, "-o", path], check=True)
    return ctypes.CDLL(str(path))


def call(library, name, *inputs):
    """Returns the result; checks that nothing is written past the result or the scratch memory."""
    n = inputs[0].numel()
    values = library.scratch_values(ctypes.c_int64(n))
    result, scratch = torch.full((2,), GUARD), torch.full((values + 1,), GUARD)
    pointers = [ctypes.c_void_p(x.data_ptr()) for x in (result, scratch, *inputs)]
    getattr(library, name)(*pointers, ctypes.c_int64(n))
    assert result[1] == GUARD
    assert scratch[-1] == GUARD
    return result[0]


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 4096, 4097, 12_288, 12_289, 100_003])
def test_any_split_into_ranges_gives_the_same_bits(library, n):
    a, b = torch.randn(2, n)
    total = call(library, "sum_in_ranges", a)
    assert total == call(library, "sum_serial", a)
    exact = a.double()
    assert abs(total.double() - exact.sum()) <= 1e-6 * exact.abs().sum()
    norm = call(library, "norm_in_ranges", a, b)
    torch.testing.assert_close(norm.double(), (exact - b.double()).norm(), rtol=1e-6, atol=0)
