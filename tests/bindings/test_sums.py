"""Tests particular to the reductions sum_single and two_norm: the order and the range of sums."""

import pytest
import torch

from bindings.sum_single import sum_single
from bindings.two_norm import two_norm, two_norm_backward

# Sizes around the limits in reductions: vector lanes, chunks of the CPU, tiles of the GPU, and the
# sizes from which the GPU uses more threads or several blocks.
EDGES = [n + more for n in (64, 4096, 8192, 16384, 32768, 65536) for more in (-1, 0, 1)]


def norm(x):
    return two_norm(torch.zeros_like(x), x)


each_sum = pytest.mark.parametrize("op", [sum_single, norm], ids=["sum_single", "two_norm"])


def unaligned(x):
    return torch.cat([x.new_ones(1), x])[1:]


@pytest.mark.parametrize("n", EDGES)
@each_sum
def test_every_element_counts_once(op, n, dtype, device):
    x = torch.zeros(n, dtype=dtype, device=device)
    x[0], x[n // 2], x[-1] = 2, 3, 6
    assert op(x) == op(unaligned(x)) == {sum_single: 11, norm: 7}[op]


@each_sum
def test_sums_of_infinities_are_infinity_or_nan(op, dtype, device):
    x = torch.ones(70_000, dtype=dtype, device=device)
    x[69_999] = float("inf")
    assert op(x) == float("inf")
    assert two_norm(x, x).isnan()
    x[0] = -float("inf")
    assert sum_single(x).isnan()


@each_sum
def test_alignment_does_not_change_the_bits(op, dtype, device):
    x = torch.randn(300_001, dtype=dtype, device=device)
    assert torch.equal(op(unaligned(x)), op(x))


@pytest.mark.gpu
@pytest.mark.parametrize("n", [(1 << 25) + 1, 3 * (1 << 24) + 5])
@each_sum
def test_last_block_of_partial_sums_may_be_partly_filled(op, n):
    x = torch.zeros(n, device="cuda")
    x[0], x[n // 2], x[-1] = 2, 3, 6
    assert op(x) == {sum_single: 11, norm: 7}[op]


def test_sum_is_accurate_to_1e_6_if_all_roundings_go_in_one_direction(device):
    x = torch.full((1 << 24,), 0.1, device=device)
    exact = x[0].double() * x.numel()
    assert abs(sum_single(x).double() - exact) <= 1e-6 * exact


@pytest.mark.parametrize(
    ("half", "n"), [(torch.float16, 60_000), (torch.bfloat16, 1 << 20)], ids=str
)
def test_16_bit_types_are_accumulated_in_float32(half, n, device):
    x = torch.ones(n, dtype=half, device=device)
    assert sum_single(x) == torch.tensor(n).to(half)
    assert norm(x) == torch.tensor(n).sqrt().to(half)
    assert norm(30_000 * x[:4]) == torch.tensor(60_000).to(half)


def test_the_gradient_of_a_sum_takes_no_memory_and_nothing_is_saved_for_it(device):
    x = torch.randn(1000, device=device, requires_grad=True)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda x: x):
        result = sum_single(x)
    assert saved == []
    (gradient,) = torch.autograd.grad(result, x)
    assert gradient.stride() == (0,)
    assert torch.equal(gradient, torch.ones_like(x))


@pytest.mark.gpu
@pytest.mark.parametrize("offset", [0, 1], ids=["aligned", "unaligned"])
def test_more_than_2_31_elements_are_all_added(offset):
    n = (1 << 31) + 3
    if torch.cuda.mem_get_info()[0] < 2.2 * (n + 1):
        pytest.skip("needs 5 GiB of GPU memory")
    x = torch.zeros(n + offset, dtype=torch.bfloat16, device="cuda")[offset:]
    x[0], x[1 << 31], x[-1] = 1, 2, 4
    assert sum_single(x) == 7


@pytest.mark.gpu
def test_more_than_2_31_elements_have_a_norm_and_its_gradient():
    n = (1 << 31) + 3
    if torch.cuda.mem_get_info()[0] < 8.8 * n:
        pytest.skip("needs 18 GiB of GPU memory")
    a, b = (torch.zeros(n, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    a[1 << 31], b[-1] = 3, 4
    assert two_norm(a, b) == 5
    grad, length = torch.tensor([1, 5], dtype=torch.bfloat16, device="cuda")
    da, db = two_norm_backward(grad, a, b, length)
    for gradient, sign in ((da, 1), (db, -1)):
        assert gradient.count_nonzero() == 2
        torch.testing.assert_close(gradient[1 << 31].item(), sign * 0.6, rtol=0.01, atol=0)
        torch.testing.assert_close(gradient[-1].item(), sign * -0.8, rtol=0.01, atol=0)
