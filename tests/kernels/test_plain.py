"""The CPU kernels work without PyTorch when they are called through C functions."""

import ctypes

import numpy as np
import pytest
import torch

from tests.kernels.conftest import call

GUARD = 123.0
DTYPES = {"half": torch.float16, "bfloat16": torch.bfloat16}


@pytest.fixture(scope="module")
def plain(library_of):
    kernels = [f"kernels/{op}_cpu.cpp" for op in ("add2", "sum_single", "two_norm")]
    return library_of("tests/kernels/plain.cpp", "tests/kernels/reductions.cpp", *kernels)


def all_16_bit_values(dtype):
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)


@pytest.mark.parametrize("name", DTYPES)
def test_widening_is_exact_for_every_value(plain, name):
    values = all_16_bit_values(DTYPES[name])
    result = call(plain[f"widen_{name}"], torch.empty(values.numel()), values)
    expected = values.float()
    assert torch.equal(result.isnan(), expected.isnan())
    number = ~expected.isnan()
    assert torch.equal(result[number].view(torch.int32), expected[number].view(torch.int32))


@pytest.mark.parametrize("name", DTYPES)
def test_narrowing_rounds_to_nearest_even(plain, name):
    values = all_16_bit_values(DTYPES[name]).double()
    values = values[values.isfinite()].sort().values
    middles = ((values[1:] + values[:-1]) / 2).float()
    infinity = torch.tensor(float("inf"))
    floats = torch.cat(
        [
            values.float(),
            middles,
            torch.nextafter(middles, infinity),
            torch.nextafter(middles, -infinity),
            torch.randint(-(2**31), 2**31 - 1, (10**6,), dtype=torch.int32).view(torch.float32),
            torch.tensor([65519.96, 65520.0, -65520.0, 65536.0, 3.4e38, 2.0**-25, 1e-45, -1e-45]),
            torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), -float("nan")]),
        ]
    )
    result = call(plain[f"narrow_{name}"], torch.empty(floats.numel(), dtype=DTYPES[name]), floats)
    expected = floats.to(DTYPES[name])
    assert torch.equal(result.isnan(), expected.isnan())
    number = ~expected.isnan()
    assert torch.equal(result[number].view(torch.int16), expected[number].view(torch.int16))


@pytest.mark.parametrize("n", [0, 1, 2, 7, 64, 1001])
@pytest.mark.parametrize("how", ["serial", "in_ranges"])
def test_add2_called_from_c_is_right(plain, how, n):
    a, b = torch.randn(n), torch.randn(n)
    c = call(plain[f"add2_{how}"], torch.full((n,), float("nan")), a, b)
    np.testing.assert_array_equal(c.numpy(), a.numpy() + b.numpy())


def reduced(library, name, *inputs):
    """Returns the result; checks that nothing is written past the result or the scratch memory."""
    values = library.scratch_values(ctypes.c_int64(len(inputs[0])))
    result, scratch = torch.full((2,), GUARD), torch.full((values + 1,), GUARD)
    pointers = [ctypes.c_void_p(x.data_ptr()) for x in (result, scratch, *inputs)]
    library[name](*pointers, ctypes.c_int64(len(inputs[0])))
    assert result[1] == GUARD
    assert scratch[-1] == GUARD
    return result[0]


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 4096, 4097, 12_288, 12_289, 100_003])
def test_any_split_into_ranges_gives_the_same_bits(plain, n):
    a, b = torch.randn(2, n)
    total = reduced(plain, "sum_in_ranges", a)
    assert total == reduced(plain, "sum_serial", a)
    exact = a.double()
    assert abs(total.double() - exact.sum()) <= 1e-6 * exact.abs().sum()
    norm = reduced(plain, "norm_in_ranges", a, b)
    torch.testing.assert_close(norm.double(), (exact - b.double()).norm(), rtol=1e-6, atol=0)
