"""Tests particular to two_norm: norms of 0, ranges, single gradients, and the C-style call."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from bindings.two_norm import two_norm, two_norm_backward
from jit_loader import load_op
from tests.bindings.conftest import EDGES_OF_SUMS, ROOT


def leaves(*tensors):
    return [x.detach().clone().requires_grad_() for x in tensors]


@pytest.mark.parametrize("n", EDGES_OF_SUMS)
def test_every_element_counts_once(n, dtype, device):
    a, b = torch.zeros(2, n, dtype=dtype, device=device)
    a[0], b[n // 2], a[-1] = 2, 3, 6
    assert two_norm(a, b) == 7
    unaligned = [torch.cat([x.new_ones(1), x])[1:] for x in (a, b)]
    assert two_norm(*unaligned) == 7


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


def test_squares_may_exceed_the_range_of_float16(device):
    a = torch.tensor([30_000.0, 0.0], dtype=torch.float16, device=device)
    assert two_norm(a, -a) == 60_000
    many = torch.full((40_000,), 100.0, dtype=torch.float16, device=device)
    assert two_norm(many, torch.zeros_like(many)) == 20_000


def test_infinity_gives_infinity_and_its_difference_is_nan(dtype, device):
    a, b = torch.zeros(2, 70_000, dtype=dtype, device=device)
    a[69_999] = float("inf")
    assert two_norm(a, b) == float("inf")
    assert two_norm(a, a).isnan()


@pytest.mark.parametrize("dtypes", [(torch.float16, torch.bfloat16), (torch.float32, torch.double)])
def test_different_dtypes_are_promoted(dtypes, device):
    a, b = leaves(*(torch.randn(3, 4, device=device).to(dtype) for dtype in dtypes))
    norm = two_norm(a, b)
    assert norm.dtype == torch.promote_types(*dtypes)
    common = [x.detach().to(norm.dtype) for x in (a, b)]
    torch.testing.assert_close(norm.detach(), two_norm(*common))
    gradients = torch.autograd.grad(norm, (a, b))
    assert tuple(x.dtype for x in gradients) == dtypes


@pytest.mark.parametrize("which", [0, 1])
def test_gradient_of_one_argument_alone_is_the_same(which, dtype, device):
    a, b = torch.randn(2, 1001, dtype=dtype, device=device)
    both = torch.autograd.grad(two_norm(*(pair := leaves(a, b))), pair)
    x = leaves((a, b)[which])[0]
    (alone,) = torch.autograd.grad(two_norm(*((x, b) if which == 0 else (a, x))), x)
    assert torch.equal(alone, both[which])


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


@pytest.mark.gpu
def test_more_than_2_31_elements_are_all_counted():
    n = (1 << 31) + 3
    if torch.cuda.mem_get_info()[0] < 8.8 * n:
        pytest.skip("needs 18 GiB of GPU memory")
    a, b = (torch.zeros(n, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    a[1 << 31], b[-1] = 3, 4
    assert two_norm(a, b) == 5
    grad, norm = torch.tensor([1, 5], dtype=torch.bfloat16, device="cuda")
    da, db = two_norm_backward(grad, a, b, norm)
    for gradient, sign in ((da, 1), (db, -1)):
        assert gradient.count_nonzero() == 2
        torch.testing.assert_close(gradient[1 << 31].item(), sign * 0.6, rtol=0.01, atol=0)
        torch.testing.assert_close(gradient[-1].item(), sign * -0.8, rtol=0.01, atol=0)


@pytest.fixture
def compiled_two_norm():
    return load_op("two_norm", project=ROOT).two_norm


@pytest.mark.parametrize(("n", "m"), [(0, 3), (1, 1), (3, 4), (300, 401)])
def test_c_style_call_writes_one_element(compiled_two_norm, n, m, device):
    a, b = torch.randn(2, n * m + 5, device=device)
    c = torch.full((3,), 7.0, device=device)
    assert compiled_two_norm(a, b, c, n, m) is None
    assert c[0] == two_norm(a[: n * m], b[: n * m])
    assert c[1:].tolist() == [7.0, 7.0]
    compiled_two_norm(m=m, n=n, c=c[1:], b=b, a=a)
    assert c[1] == c[0]


def test_c_style_call_may_write_into_an_input(compiled_two_norm, device):
    for n in (100, 100_000):
        a, b = torch.randn(2, 1, n, device=device)
        expected = two_norm(a, b)
        compiled_two_norm(a, b, a[0], 1, n)
        assert a[0, 0] == expected


def test_autograd_notices_the_c_style_call(compiled_two_norm):
    x = torch.randn(4, requires_grad=True)
    y = x.exp()  # saves its result
    compiled_two_norm(y.detach(), y.detach(), y.detach(), 2, 2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_c_style_call_refuses_bad_arguments_and_writes_nothing(compiled_two_norm, device):
    a, b = torch.randn(2, 100, device=device)
    c = torch.full((1,), 7.0, device=device)
    cases = [
        ((a, b, c, -1, 5), ValueError, ["'n'", "-1"]),
        ((a, b, c, 5, -2), ValueError, ["'m'", "-2"]),
        ((a, b, c, 1 << 40, 1 << 40), ValueError, [str(1 << 40), "64 bits"]),
        ((a, b, c, 101, 1), RuntimeError, ["'a'", "100", "101"]),
        ((a, b[:50], c, 10, 10), RuntimeError, ["'b'", "50", "100"]),
        ((a, b, c[:0], 1, 1), RuntimeError, ["'c'", "0 elements"]),
        ((a.double(), b, c, 3, 3), RuntimeError, ["'a'", "Double", "Float"]),
        ((a, b.int(), c, 3, 3), RuntimeError, ["'b'", "Int", "Float"]),
        ((a, b, c.half(), 3, 3), RuntimeError, ["'c'", "Half", "Float"]),
        ((a[::2], b, c, 3, 3), RuntimeError, ["'a'", "contiguous", "[2]"]),
        ((a, b.to("meta"), c, 3, 3), NotImplementedError, ["'b'", "meta"]),
        ((a, [1.0], c, 3, 3), TypeError, ["'b'", "list"]),
        ((a, b, c, 3.0, 3), TypeError, ["'n'", "float"]),
    ]
    for arguments, kind, parts in cases:
        with pytest.raises(kind) as caught:
            compiled_two_norm(*arguments)
        for part in ["two_norm", *parts]:
            assert part in str(caught.value), caught.value
    assert c == 7, "nothing was written"


@pytest.mark.gpu
def test_c_style_call_refuses_mixed_devices(compiled_two_norm):
    x = torch.zeros(3)
    with pytest.raises(RuntimeError, match=r"two_norm.*'a' is on cpu and 'b' on cuda"):
        compiled_two_norm(x, x.cuda(), x, 1, 3)
