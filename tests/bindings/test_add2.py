"""Tests particular to add2: promotion, every 16-bit value, broadcast gradients, AddModel."""

import copy
import functools
import itertools
import pickle

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

from bindings.add2 import AddModel, add2
from bindings.sum_double import sum_double
from tests.bindings.case import FLOATING, as_float64
from tests.bindings.views import laid_out, views


def assert_is_sum(c, a, b):
    """Checks that c is a + b to half a unit, with PyTorch's shape, dtype and device."""
    expected = as_float64(a) + as_float64(b)
    assert c.shape == expected.shape
    assert c.dtype == torch.result_type(a, b)
    assert c.device == a.device
    assert c.is_contiguous()
    # An input of another dtype is rounded before the sum, and the sum is rounded again.
    roundings = 1 if a.dtype == b.dtype else 2
    information = torch.finfo(c.dtype)
    size = np.abs(as_float64(a)) + np.abs(as_float64(b)) if roundings == 2 else np.abs(expected)
    limit = roundings * information.eps * 0.5001 * size + information.smallest_normal
    np.testing.assert_array_less(np.abs(as_float64(c) - expected), limit)


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_sum_of_any_two_dtypes_shapes_and_strides_is_right(device, data):
    shapes = data.draw(mutually_broadcastable_shapes(num_shapes=2, min_side=0, max_side=6))
    dtypes = data.draw(st.tuples(st.sampled_from(FLOATING), st.sampled_from(FLOATING)))
    a, b = (
        laid_out(
            shape,
            data.draw(views(shape)),
            functools.partial(torch.randn, dtype=dtype, device=device),
        )
        for shape, dtype in zip(shapes.input_shapes, dtypes)
    )
    assert_is_sum(add2(a, b), a, b)


@pytest.mark.parametrize("n", range(1, 40))
def test_sum_of_every_size_up_to_39_is_right(n, dtype, device):
    a, b = torch.randn(2, n, dtype=dtype, device=device)
    assert_is_sum(add2(a, b.clone()), a, b)


@pytest.mark.parametrize("dtypes", list(itertools.permutations(FLOATING, 2)), ids=str)
@pytest.mark.parametrize(
    "shapes", [((3, 4), (3, 4)), ((3, 1), (4,)), ((5,), ()), ((), ())], ids=str
)
def test_different_dtypes_are_promoted(shapes, dtypes, device):
    a, b = (torch.randn(shape, dtype=dtype, device=device) for shape, dtype in zip(shapes, dtypes))
    assert_is_sum(add2(a, b), a, b)


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


@pytest.mark.gpu
@pytest.mark.parametrize("devices", [("cpu", "cuda"), ("cuda", "cpu")], ids=str)
def test_cpu_scalar_with_a_cuda_tensor_is_refused(devices):
    a, b = (torch.ones((), device=devices[0]), torch.ones(5, device=devices[1]))
    with pytest.raises(RuntimeError, match=r"add2.*'a' is on .*'b' on "):
        add2(a, b)


@pytest.mark.parametrize("needed", [(True, False), (False, True), (True, True), (False, False)])
def test_any_subset_of_the_arguments_gets_gradients(needed, dtype, device):
    a = torch.randn(4, 1, dtype=dtype, device=device, requires_grad=needed[0])
    b = torch.randn(3, dtype=torch.float32, device=device, requires_grad=needed[1])
    c = add2(a, b)
    assert c.requires_grad == any(needed)
    if c.requires_grad:
        c.backward(torch.ones_like(c))
    for x, flag, expected in [(a, needed[0], 3.0), (b, needed[1], 4.0)]:
        if flag:
            assert x.grad.dtype == x.dtype
            assert torch.equal(x.grad, torch.full_like(x, expected))
        else:
            assert x.grad is None


def test_one_tensor_as_both_arguments_gets_both_gradients(device):
    a = torch.randn(5, device=device, requires_grad=True)
    add2(a, a).sum().backward()
    assert torch.equal(a.grad, torch.full_like(a, 2))


def test_sum_double_is_another_name_of_add2():
    assert sum_double is add2


def test_docstrings_describe_the_functions(compiled):
    assert "broadcast" in add2.__doc__
    assert "a + b" in compiled.forward.__doc__
    assert "float32" in compiled.torch_launch_add2.__doc__


def test_model_returns_the_sum_of_squares(device):
    model = AddModel(1000).to(device)
    assert [(name, p.shape, p.dtype) for name, p in model.named_parameters()] == [
        ("a", (1000,), torch.float32),
        ("b", (1000,), torch.float32),
    ]
    assert_is_sum(model(), model.a * model.a, model.b * model.b)
    model().sum().backward()
    torch.testing.assert_close(model.a.grad, 2 * model.a.detach())
    torch.testing.assert_close(model.b.grad, 2 * model.b.detach())


def test_model_copies_pickles_and_saves(device):
    model = AddModel(7).to(device)
    other = AddModel(7).to(device)
    other.load_state_dict(model.state_dict())
    for copied in [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), other]:
        assert copied.a is not model.a
        assert torch.equal(copied(), model())


def test_model_trains_to_zero(device):
    model = AddModel(100).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        model().sum().backward()
        optimizer.step()
    assert model().max() < 1e-6
