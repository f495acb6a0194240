"""Tests particular to sum_single: the order of its sums and the cost of its gradient."""

import pytest
import torch

from bindings.sum_single import sum_single
from tests.bindings.conftest import EDGES_OF_SUMS


@pytest.mark.parametrize("n", EDGES_OF_SUMS)
def test_every_element_counts_once(n, dtype, device):
    x = torch.zeros(n, dtype=dtype, device=device)
    for first, last in [(0, 7), (n - 1, 3), (n // 2, 5)]:
        x[first] += last
    assert sum_single(x) == 15
    assert sum_single(torch.cat([x.new_ones(1), x])[1:]) == 15


def test_sum_is_accurate_to_1e_6_if_all_roundings_go_in_one_direction(device):
    x = torch.full((1 << 24,), 0.1, device=device)
    exact = x[0].double() * x.numel()
    assert abs(sum_single(x).double() - exact) <= 1e-6 * exact


@pytest.mark.parametrize(
    ("half", "n"), [(torch.float16, 60_000), (torch.bfloat16, 1 << 20)], ids=str
)
def test_16_bit_types_are_accumulated_in_float32(half, n, device):
    assert sum_single(torch.ones(n, dtype=half, device=device)) == torch.tensor(n).to(half)


def test_sum_of_infinities_is_infinity_or_nan(dtype, device):
    infinity = float("inf")
    x = torch.ones(70_000, dtype=dtype, device=device)
    x[69_999] = infinity
    assert sum_single(x) == infinity
    x[0] = -infinity
    assert sum_single(x).isnan()


def test_sum_of_permuted_and_channels_last_tensors_is_right(device):
    x = torch.randint(-9, 9, (30, 40, 50), device=device).float()
    expected = x.sum()
    for view in [
        x.permute(2, 0, 1),
        x.transpose(0, 1),
        x[None].to(memory_format=torch.channels_last),
    ]:
        assert sum_single(view) == expected


def test_alignment_does_not_change_the_bits(dtype, device):
    x = torch.randn(300_001, dtype=dtype, device=device)
    unaligned = torch.cat([x.new_zeros(1), x])[1:]
    assert torch.equal(sum_single(unaligned), sum_single(x))


def test_the_gradient_takes_no_memory_and_nothing_is_saved_for_it(device):
    x = torch.randn(1000, device=device, requires_grad=True)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda x: x):
        result = sum_single(x)
    assert saved == []
    (gradient,) = torch.autograd.grad(result, x)
    assert gradient.stride() == (0,)
    assert torch.equal(gradient, torch.ones_like(x))


@pytest.mark.gpu
@pytest.mark.parametrize("n", [(1 << 25) + 1, 3 * (1 << 24) + 5])
def test_last_block_of_partial_sums_may_be_partly_filled(n):
    x = torch.zeros(n, device="cuda")
    x[0], x[n // 2], x[-1] = 1, 2, 4
    assert sum_single(x) == 7


@pytest.mark.gpu
@pytest.mark.parametrize("offset", [0, 1], ids=["aligned", "unaligned"])
def test_more_than_2_31_elements_are_all_added(offset):
    n = (1 << 31) + 3
    if torch.cuda.mem_get_info()[0] < 2.2 * (n + 1):
        pytest.skip("needs 5 GiB of GPU memory")
    x = torch.zeros(n + offset, dtype=torch.bfloat16, device="cuda")[offset:]
    x[0], x[1 << 31], x[-1] = 1, 2, 4
    assert sum_single(x) == 7
