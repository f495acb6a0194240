"""Tests particular to two_norm: norms of 0, single gradients, and two_norm_backward."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from bindings.two_norm import two_norm, two_norm_backward


def leaves(*tensors):
    return [x.detach().clone().requires_grad_() for x in tensors]


@pytest.mark.parametrize("n", [0, 1, 5, 70_000])
def test_gradients_of_every_order_are_zero_if_the_norm_is_zero(n, dtype, device):
    a, b = leaves(*torch.ones(2, n, dtype=dtype, device=device))
    norm = two_norm(a, b)
    assert norm == 0
    gradients = torch.autograd.grad(norm, (a, b), create_graph=True)
    assert not any(x.any() for x in gradients)
    for order in range(2):
        total = sum((x * (i + 2)).sum() for i, x in enumerate(gradients))
        gradients = torch.autograd.grad(total, (a, b), create_graph=order == 0)
        assert not any(x.any() for x in gradients)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("shape", [(100, 1000), (1000,)], ids=["alike", "broadcast"])
def test_gradient_of_one_argument_alone_needs_no_memory_but_its_own(shape, which):
    pair = [torch.randn(100, 1000), torch.randn(shape)]
    pair[which].requires_grad_()
    norm = two_norm(*pair)
    with torch.profiler.profile(profile_memory=True) as profile:
        torch.autograd.grad(norm, pair[which])
    allocated = [x.self_cpu_memory_usage for x in profile.events() if x.self_cpu_memory_usage > 0]
    # The gradient has the broadcast shape until autograd sums it.
    assert 400_000 <= sum(allocated) < 500_000


@pytest.mark.parametrize("shapes", [((4, 5), (4, 5)), ((3, 1), (4,))], ids=str)
def test_second_derivatives_with_one_argument_fixed_pass_gradgradcheck(shapes, device):
    a, b = (torch.randn(shape, dtype=torch.double, device=device) for shape in shapes)
    for fixed in [lambda x: two_norm(x, b), lambda x: two_norm(x, b).exp()]:
        assert gradgradcheck(fixed, leaves(a))
    assert gradgradcheck(lambda x: two_norm(a, x), leaves(b))


def test_backward_op_has_correct_gradients(device):
    a, b = torch.randn(2, 3, 4, dtype=torch.double, device=device)
    grad, norm = torch.tensor([1.5, 2.5], dtype=torch.double, device=device)
    assert gradcheck(two_norm_backward, leaves(grad, a, b, norm))
    assert gradgradcheck(two_norm_backward, leaves(grad, a, b, norm))
    with pytest.raises(RuntimeError, match=r"two_norm_backward.*'norm' has 3 elements"):
        two_norm_backward(grad, a, b, norm.expand(3))


@pytest.mark.parametrize("offset", [0, 1, 3])
def test_gradients_of_unaligned_memory_are_the_same(offset, dtype, device):
    a, b = torch.randn(2, 5000, dtype=dtype, device=device)
    moved = [torch.cat([x.new_zeros(by), x])[by:] for x, by in ((a, offset), (b, 2 * offset))]
    pairs = leaves(a, b), [x.requires_grad_() for x in moved]
    ours, expected = (torch.autograd.grad(two_norm(*pair), pair) for pair in pairs)
    assert all(map(torch.equal, ours, expected))
