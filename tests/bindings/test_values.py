"""Compares every op with numpy in float64, for every dtype, shape, stride and device."""

import doctest
import functools
import importlib
import inspect
import itertools

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.bindings.case import CASES, FLOATING, as_tuple, assert_is_right, each_case

OPS = sorted({case.op.__module__.removeprefix("bindings.") for case in CASES})


@each_case
def test_values_agree_with_numpy(case, dtype, device):
    for shapes in [*case.shapes, case.large]:
        arguments = case.arguments(shapes, dtype, device)
        assert_is_right(case, case.op(*arguments), arguments)


@st.composite
def views(draw, shape):
    """Draws a layout for a shape: order of dimensions, steps, offset, expansions."""
    rank = len(shape)
    return (
        draw(st.permutations(range(rank))),
        draw(st.tuples(*[st.integers(1, 3)] * rank)),
        draw(st.integers(0, 9)),
        draw(st.tuples(*[st.sampled_from([False, False, False, True])] * rank)),
    )


def laid_out(shape, view, make):
    """Returns a tensor of a shape in a layout, as a view of the memory that make(shape) returns."""
    order, steps, offset, expanded = view
    stored = [1 if flag and size > 0 else size for size, flag in zip(shape, expanded)]
    memory_shape = [stored[i] * steps[i] for i in order]
    memory = make((offset + int(np.prod(memory_shape)),))
    x = memory[offset:].view(memory_shape)
    x = x.permute([order.index(i) for i in range(len(order))])
    return x[tuple(slice(None, None, step) for step in steps)].expand(shape)


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
@each_case
def test_values_of_any_shapes_and_strides_agree_with_numpy(case, device, data):
    dtype = data.draw(st.sampled_from(FLOATING))
    shapes = data.draw(case.any_shapes)
    arguments = tuple(
        laid_out(
            shape,
            data.draw(views(shape)),
            functools.partial(case.draw, position, dtype=dtype, device=device),
        )
        for position, shape in enumerate(shapes)
    )
    assert_is_right(case, case.op(*arguments), arguments)


@pytest.mark.parametrize("dtypes", list(itertools.permutations(FLOATING, 2)), ids=str)
@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name) for case in CASES if case.promotes]
)
def test_different_dtypes_are_promoted(case, dtypes, device):
    for shapes in case.shapes[-4:]:
        drawn = case.arguments(shapes, torch.float32, device)
        inputs = [x.to(dtype).requires_grad_() for x, dtype in zip(drawn, dtypes)]
        promoted = torch.result_type(*inputs)  # a tensor of no dimensions counts less
        result, expected = case.op(*inputs), case.op(*(x.to(promoted) for x in inputs))
        assert result.dtype == promoted
        torch.testing.assert_close(result, expected, rtol=0, atol=0)
        gradients = torch.autograd.grad(result.sum(), inputs)
        assert [x.dtype for x in gradients] == list(dtypes)
        of_promoted = torch.autograd.grad(expected.sum(), inputs)
        torch.testing.assert_close(gradients, of_promoted, equal_nan=True)


@pytest.mark.parametrize("offset", range(1, 9))
@each_case
def test_values_of_unaligned_memory_agree_with_numpy(case, offset, dtype, device):
    def unaligned(x, by):
        return torch.cat([x.new_zeros(by), x.flatten()])[by:].view(x.shape)

    arguments = case.arguments(case.shapes[-1], dtype, device)
    moved = [unaligned(x, offset + position) for position, x in enumerate(arguments)]
    assert_is_right(case, case.op(*moved), arguments)


@each_case
def test_same_bits_at_every_call_and_with_any_number_of_threads(case, dtype, device):
    arguments = case.arguments(case.large, dtype, device)
    first = as_tuple(case.op(*arguments))
    threads = torch.get_num_threads()
    try:
        for count in [threads, 1, 3, threads]:
            torch.set_num_threads(count)
            assert all(map(torch.equal, first, as_tuple(case.op(*arguments))))
    finally:
        torch.set_num_threads(threads)


@each_case
def test_results_do_not_share_memory_with_the_arguments(case, device):
    arguments = case.arguments(case.shapes[-1], torch.float32, device)
    before = [x.clone() for x in arguments]
    for result in as_tuple(case.op(*arguments)):
        result.fill_(7)
    assert all(map(torch.equal, before, arguments))


@each_case
def test_arguments_may_be_named_and_missing_ones_are_errors(case):
    arguments = case.arguments(case.shapes[-1], torch.float32)
    named = dict(zip(inspect.signature(case.op).parameters, arguments))
    expected = as_tuple(case.op(*arguments))
    backwards = dict(reversed(named.items()))
    assert all(map(torch.equal, as_tuple(case.op(**backwards)), expected))
    with pytest.raises(TypeError, match=rf"{case.name}.*other"):
        case.op(*arguments, other=1)
    with pytest.raises(TypeError, match=case.name):
        case.op(*arguments[1:])


@each_case
def test_bad_input_is_an_error_that_names_the_op(case):
    for arguments, kind, words in case.bad_calls.values():
        with pytest.raises(kind) as caught:
            case.op(*arguments)
        assert type(caught.value) is kind
        assert all(word in str(caught.value) for word in [case.name, *words]), caught.value


@each_case
def test_other_types_dtypes_and_layouts_are_refused_in_every_argument(case):
    good = case.arguments(case.shapes[-1], torch.float32)
    for position, parameter in enumerate(case.op.op.parameters):
        named = rf"{case.name}\(\): .*'{parameter}'"
        x, refused = good[position], (NotImplementedError, TypeError)
        for bad, kinds, message in [
            ([1.0], TypeError, f"{named}.*list"),
            (None, TypeError, f"{named}.*None"),
            (x.int(), refused, f"{named}.*int32"),
            (x.to(torch.complex64), refused, named),
            (x.to_sparse(), NotImplementedError, case.name),
        ]:
            with pytest.raises(kinds, match=message):
                case.op(*good[:position], bad, *good[position + 1 :])


@pytest.mark.gpu
@each_case
def test_mixed_devices_are_refused(case):
    good = case.arguments(case.shapes[-1], torch.float32, "cuda")
    if len(good) == 1:
        pytest.skip("takes one tensor")
    for position in range(len(good)):
        arguments = [*good[:position], good[position].cpu(), *good[position + 1 :]]
        with pytest.raises(RuntimeError, match=rf"{case.name}.* is on .* on "):
            case.op(*arguments)


@pytest.mark.parametrize("name", OPS)
def test_examples_in_the_docstrings_are_right(name):
    module = importlib.import_module(f"bindings.{name}")
    results = doctest.testmod(module, extraglobs={"torch": torch})
    assert results.attempted > 0
    assert results.failed == 0
