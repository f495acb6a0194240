"""Tests first and second gradients of every op: gradcheck, then each dtype against float64."""

import itertools

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from tests.bindings.case import CASES, ONE_DTYPE, as_tuple, each_case, unit


def size(shapes):
    return sum(max(1, torch.Size(shape).numel()) for shape in shapes)


# gradcheck calls the op twice for each element.
@pytest.mark.parametrize(
    ("case", "shapes"),
    [
        pytest.param(
            *(case, shapes),
            id=f"{case.name}-{shapes}",
            marks=pytest.mark.slow if size(shapes) > 64 else (),
        )
        for case in CASES
        for shapes in case.shapes
        if size(shapes) <= 200
    ],
)
def test_gradcheck_and_gradgradcheck_pass(case, shapes, device):
    arguments = case.arguments(shapes, torch.float64, device, requires_grad=True)
    # fast_mode would miss one wrong element among many.
    assert gradcheck(case.op, arguments)
    assert gradgradcheck(case.op, arguments)
    # The second derivative of a linear op is zero, so test it within a nonlinear function.
    squared = lambda *x: tuple(y.square() for y in as_tuple(case.op(*(t * t for t in x))))  # noqa: E731
    assert gradgradcheck(squared, arguments)


def gradients(case, arguments, grads, needed):
    """Returns the gradients of the needed arguments, given those of the results."""
    inputs = [x.detach().requires_grad_(flag) for x, flag in zip(arguments, needed)]
    results = as_tuple(case.op(*inputs))
    assert all(result.requires_grad for result in results)
    wanted = [x for x, flag in zip(inputs, needed) if flag]
    return torch.autograd.grad(results, wanted, grads[: len(results)])


def draw_grads(case, arguments):
    with torch.no_grad():
        return [torch.randn_like(result) for result in as_tuple(case.op(*arguments))]


def assert_close(case, dtype, ours, expected):
    """Checks each element, within its own rounding and the error that the case allows."""
    information = torch.finfo(dtype)
    for result, wanted in zip(ours, expected):
        assert result.dtype == dtype
        assert result.shape == wanted.shape
        if wanted.numel() == 0:
            continue
        largest = wanted.abs().max()
        units = case.gradient_units * unit(dtype) + case.saved_rounding * information.eps
        limit = units * largest + information.eps * wanted.abs() + information.smallest_normal
        difference = (result.double() - wanted).abs()
        assert bool((difference <= limit).all()), (difference / limit).max()


@each_case
def test_each_dtype_has_the_gradient_of_float64(case, dtype, device):
    for shapes in case.shapes:
        if case.broadcasts and len(set(shapes)) > 1:
            continue  # tested below: a sum of rounded gradients may be near 0
        assert_gradient_of_float64(case, shapes, dtype, device)


@pytest.mark.parametrize("dtype", ONE_DTYPE, ids=str)
@each_case
def test_gradient_of_more_elements_than_one_thread_takes_is_that_of_float64(case, dtype, device):
    assert_gradient_of_float64(case, case.large, dtype, device)


def assert_gradient_of_float64(case, shapes, dtype, device):
    arguments = case.arguments(shapes, dtype, device)
    grads = draw_grads(case, arguments)
    every = [True] * len(arguments)
    expected = gradients(case, [x.double() for x in arguments], [g.double() for g in grads], every)
    assert_close(case, dtype, gradients(case, arguments, grads, every), expected)


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name) for case in CASES if case.broadcasts]
)
def test_gradient_of_a_broadcast_argument_is_the_sum_over_its_copies(case, dtype, device):
    for shapes in case.shapes:
        arguments = case.arguments(shapes, dtype, device)
        grads = draw_grads(case, arguments)
        every = [True] * len(arguments)
        copies = gradients(case, torch.broadcast_tensors(*arguments), grads, every)
        for result, copy in zip(gradients(case, arguments, grads, every), copies):
            assert result.dtype == dtype
            wanted = copy.double().sum_to_size(result.shape)
            allowed = copy.double().abs().sum_to_size(result.shape) * 4 * unit(dtype)
            allowed += torch.finfo(dtype).eps * wanted.abs() + torch.finfo(dtype).smallest_normal
            assert bool(((result.double() - wanted).abs() <= allowed).all())


@each_case
def test_gradient_of_any_subset_of_the_arguments_is_the_same(case, device):
    arguments = case.arguments(case.shapes[-1], torch.float64, device)
    grads = draw_grads(case, arguments)
    every = gradients(case, arguments, grads, [True] * len(arguments))
    for needed in itertools.product([True, False], repeat=len(arguments)):
        if not any(needed):
            assert not as_tuple(case.op(*arguments))[0].requires_grad
            continue
        some = gradients(case, arguments, grads, needed)
        expected = [gradient for gradient, flag in zip(every, needed) if flag]
        for ours, wanted in zip(some, expected):
            torch.testing.assert_close(ours, wanted)


@each_case
def test_incoming_gradients_may_be_expanded_or_not_contiguous(case, device):
    arguments = case.arguments(case.shapes[-1], torch.float64, device)
    every = [True] * len(arguments)
    results = as_tuple(case.op(*arguments))
    expanded = [x.new_ones(()).expand(x.shape) for x in results]
    strided = [torch.randn(*x.shape, 2, device=device).double()[..., 0] for x in results]
    transposed = [
        torch.randn(x.shape[::-1], device=device).double().permute(tuple(range(x.dim()))[::-1])
        for x in results
    ]
    for grads in [expanded, strided, transposed]:
        ours = gradients(case, arguments, grads, every)
        expected = gradients(case, arguments, [x.contiguous() for x in grads], every)
        torch.testing.assert_close(ours, expected)


@each_case
def test_unused_result_counts_as_a_gradient_of_zero(case, device):
    arguments = case.leaves(device)
    results = as_tuple(case.op(*arguments))
    for used in range(len(results)):
        zeros = [torch.zeros_like(x) for x in results]
        zeros[used] = torch.ones_like(results[used])
        ours = torch.autograd.grad(results[used].sum(), arguments, retain_graph=True)
        expected = torch.autograd.grad(results, arguments, zeros, retain_graph=True)
        torch.testing.assert_close(ours, expected)


@each_case
def test_results_in_no_grad_and_inference_mode_need_no_gradient(case, device):
    arguments = case.leaves(device, torch.float32)
    with torch.no_grad():
        assert not any(x.requires_grad for x in as_tuple(case.op(*arguments)))
    with torch.inference_mode():
        assert all(x.is_inference() for x in as_tuple(case.op(*arguments)))
