"""Tests particular to add2: every small size, every 16-bit value, special values."""

import pytest
import torch

from bindings.add2 import add2
from bindings.sum_double import sum_double


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
def test_every_16_bit_value_is_added_and_rounded_as_in_pytorch(half, device):
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(half).to(device)
    other = every[torch.randperm(every.numel(), device=device)]
    for a, b in [(every, torch.zeros_like(every)), (every, other)]:
        expected = (a.float() + b.float()).to(half)
        torch.testing.assert_close(add2(a, b), expected, rtol=0, atol=0, equal_nan=True)


def test_special_values_agree_with_pytorch(dtype, device):
    special = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), torch.finfo(dtype).max]
    special += [torch.finfo(dtype).smallest_normal, torch.finfo(dtype).smallest_normal / 2]
    a = torch.tensor(special, dtype=dtype, device=device)[:, None]
    c, expected = add2(a, a.T), a + a.T
    torch.testing.assert_close(c, expected, rtol=0, atol=0, equal_nan=True)
    number = ~c.isnan()
    assert torch.equal(c[number].signbit(), expected[number].signbit())


def test_one_tensor_as_both_arguments_gets_both_gradients(device):
    a = torch.randn(5, device=device, requires_grad=True)
    add2(a, a).sum().backward()
    assert torch.equal(a.grad, torch.full_like(a, 2))


def test_sum_double_is_another_name_of_add2():
    assert sum_double is add2
