"""Tests particular to lltm: PyTorch's matrix products, autocast, strides, and special values."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from bindings.lltm import lltm
from tests.bindings.cases.lltm import CASE, shapes


def in_torch(input, weights, bias, old_h, old_cell):
    """Computes lltm with PyTorch's operations."""
    gates = F.linear(torch.cat([old_h, input], dim=1), weights, bias.flatten())
    i, o, c = gates.chunk(3, dim=1)
    new_cell = old_cell + F.elu(c) * torch.sigmoid(i)
    return torch.tanh(new_cell) * torch.sigmoid(o), new_cell


def arguments(device, dtype=torch.float32, requires_grad=True):
    return CASE.arguments(shapes(4, 3, 5), dtype, device, requires_grad)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
def test_autocast_works_as_with_pytorchs_operations(half, device):
    inputs = arguments(device)
    with torch.autocast(device, half):
        ours, expected = lltm(*inputs), in_torch(*inputs)
        registered = torch.ops.jit_loader.lltm(*inputs)[:2]
        compiled = torch.compile(lltm, fullgraph=True, backend="aot_eager")(*inputs)
        transformed = torch.vmap(lltm)(*(x.detach()[None] for x in inputs))
    for results in (ours, registered, compiled, [x[0] for x in transformed]):
        for result, wanted in zip(results, expected):
            assert result.dtype == wanted.dtype == torch.float32
            torch.testing.assert_close(result, wanted, rtol=0.02, atol=0.02)
    assert not torch.equal(ours[0], lltm(*inputs)[0])
    gradients = torch.autograd.grad(sum(x.sum() for x in ours), inputs)
    expected = torch.autograd.grad(sum(x.sum() for x in expected), inputs)
    torch.testing.assert_close(gradients, expected, rtol=0.05, atol=0.05)


def test_autocast_keeps_the_dtypes_of_float64_and_16_bit_inputs(device):
    for dtype in (torch.float64, torch.bfloat16):
        inputs = arguments(device, dtype)
        with torch.autocast(device, torch.bfloat16):
            assert [x.dtype for x in lltm(*inputs)] == [x.dtype for x in in_torch(*inputs)]


@pytest.mark.parametrize(
    ("product", "cell"),
    list(itertools.permutations([torch.float16, torch.float32, torch.float64], 2)),
)
def test_cell_of_another_dtype_is_promoted(product, cell, device):
    *rest, old_cell = arguments(device, product, requires_grad=False)
    inputs = [x.requires_grad_() for x in (*rest, old_cell.to(cell))]
    results = lltm(*inputs)
    assert {x.dtype for x in results} == {torch.promote_types(product, cell)}
    expected = in_torch(*(x.double() for x in inputs))
    torch.testing.assert_close([x.double() for x in results], list(expected), rtol=0.01, atol=0.01)
    gradients = torch.autograd.grad(sum(x.sum() for x in results), inputs)
    assert [g.dtype for g in gradients] == [x.dtype for x in inputs]


def test_large_gates_make_no_nan(device):
    weights = torch.zeros(3, 2, device=device)
    bias = torch.tensor([100.0, -100.0, 100.0], device=device).requires_grad_()
    zero = torch.zeros(1, 1, device=device)
    for sign in (1, -1):
        results = lltm(zero, weights, sign * bias, zero, zero)
        (gradient,) = torch.autograd.grad(sum(x.sum() for x in results), bias)
        assert all(bool(x.isfinite().all()) for x in (*results, gradient))


def test_gradient_with_any_strides_is_not_copied(dtype, device):
    inputs = arguments(device, dtype)
    results = lltm(*inputs)
    rows = torch.randn(5, 8, dtype=dtype, device=device)
    views = [
        rows[0, 0].expand(4, 5),
        rows[:1, :5].expand(4, 5),
        rows[:4, :1].expand(4, 5),
        rows[:, :4].T,
        rows[:4, 1:6],
        rows.flatten()[::2].as_strided((4, 5), (10, 2)),
    ]
    every = [[view, view.contiguous()] for view in views]
    for grads in [*every, *(pair[::-1] for pair in every)]:
        with torch.profiler.profile() as profile:
            torch.autograd.grad(results, inputs, grads, retain_graph=True)
        assert not any(event.name == "aten::copy_" for event in profile.events())


def test_elu_has_slope_1_at_0(device):
    weights, zero = torch.zeros(3, 2, device=device), torch.zeros(1, 1, device=device)
    bias = torch.zeros(3, device=device, requires_grad=True)
    _, new_cell = lltm(zero, weights, bias, zero, zero)
    (gradient,) = torch.autograd.grad(new_cell.sum(), bias)
    assert gradient.tolist() == [0, 0, 0.5]


def test_gradients_that_are_not_needed_are_not_computed(device):
    inputs = arguments(device)
    for position, products in [(2, 0), (4, 0), (0, 1), (1, 1)]:
        total = sum(x.sum() for x in lltm(*inputs))
        with torch.profiler.profile() as profile:
            torch.autograd.grad(total, inputs[position])
        counts = {event.key: event.count for event in profile.key_averages()}
        assert counts.get("aten::mm", 0) == products
        assert counts["lltm_backward"] == 1


def test_backward_refuses_wrong_arguments():
    inputs = arguments("cpu", requires_grad=False)
    _, new_cell, x, gates = lltm.build.module.forward(*inputs)
    saved, every = (new_cell, x, gates), (True,) * 5
    sequence = r"backward\(\): argument 'needs' must be a sequence of 5 bools, not "
    for changed, needs, error, message in [
        ((new_cell[:1], x, gates), every, RuntimeError, r"lltm_backward.*new_cell"),
        ((new_cell, x[:, :1], gates), every, RuntimeError, r"lltm_backward.*'x'"),
        ((new_cell, x, gates[:1]), every, RuntimeError, r"lltm_backward.*gates"),
        (saved, (True,) * 4, TypeError, f"{sequence}one of 4"),
        (saved, [True, 1, True, True, True], TypeError, f"{sequence}one of other values"),
        (saved, None, TypeError, f"{sequence}NoneType"),
    ]:
        with pytest.raises(error, match=message):
            lltm.build.module.backward(None, None, *inputs, *changed, needs)


@pytest.mark.gpu
def test_tf32_follows_pytorchs_setting():
    inputs = CASE.arguments(shapes(64, 64, 64), torch.float32, "cuda")
    precise = lltm(*inputs)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        rough = lltm(*inputs)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert not torch.equal(rough[1], precise[1])
    torch.testing.assert_close(rough, precise, rtol=0.02, atol=0.02)
