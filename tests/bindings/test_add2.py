"""add2's numbers: every dtype, shape, stride and device, against numpy in float64."""

import copy
import itertools
import pickle

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes
from torch.autograd import gradcheck, gradgradcheck

from bindings.add2 import AddModel, add2

FLOATING = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
SHAPES = [(), (1,), (0,), (3, 0, 2), (7,), (64,), (4, 5), (2, 3, 4, 5), (1023,), (4096, 17)]


def as_float64(x):
    return x.detach().double().cpu().numpy()


def assert_is_sum(c, a, b):
    """c is a + b in PyTorch's shape, dtype and place, to half a unit in the last place."""
    expected = as_float64(a) + as_float64(b)
    assert c.shape == expected.shape
    assert c.dtype == torch.result_type(a, b)
    assert c.device == a.device
    assert c.is_contiguous()
    # An input of another dtype is rounded before the sum, which is rounded itself.
    roundings = 1 if a.dtype == b.dtype else 2
    information = torch.finfo(c.dtype)
    size = np.abs(as_float64(a)) + np.abs(as_float64(b)) if roundings == 2 else np.abs(expected)
    limit = roundings * information.eps * 0.5001 * size + information.smallest_normal
    np.testing.assert_array_less(np.abs(as_float64(c) - expected), limit)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values(shape, dtype, device):
    a = torch.randn(shape, dtype=dtype, device=device)
    b = torch.randn(shape, dtype=dtype, device=device)
    assert_is_sum(add2(a, b), a, b)


def test_more_elements_than_one_thread_takes(dtype, device):
    a = torch.randn(300_001, dtype=dtype, device=device)
    b = torch.randn(300_001, dtype=dtype, device=device)
    assert_is_sum(add2(a, b), a, b)


@st.composite
def views(draw, shape):
    """A layout for a tensor of this shape: order of dimensions, steps, offset, expansions."""
    rank = len(shape)
    return (
        draw(st.permutations(range(rank))),
        draw(st.tuples(*[st.integers(1, 3)] * rank)),
        draw(st.integers(0, 9)),
        draw(st.tuples(*[st.sampled_from([False, False, False, True])] * rank)),
    )


def laid_out(shape, view, dtype, device):
    """Random values in that layout: transposed, sliced, unaligned, expanded."""
    order, steps, offset, expanded = view
    stored = [1 if flag and size > 0 else size for size, flag in zip(shape, expanded)]
    memory_shape = [stored[i] * steps[i] for i in order]
    memory = torch.randn(offset + int(np.prod(memory_shape)), dtype=dtype, device=device)
    x = memory[offset:].view(memory_shape)
    x = x.permute([order.index(i) for i in range(len(order))])
    return x[tuple(slice(None, None, step) for step in steps)].expand(shape)


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_shapes_and_strides_that_broadcast(device, data):
    shapes = data.draw(mutually_broadcastable_shapes(num_shapes=2, min_side=0, max_side=6))
    dtypes = data.draw(st.tuples(st.sampled_from(FLOATING), st.sampled_from(FLOATING)))
    a, b = (
        laid_out(shape, data.draw(views(shape)), dtype, device)
        for shape, dtype in zip(shapes.input_shapes, dtypes)
    )
    assert_is_sum(add2(a, b), a, b)


@pytest.mark.parametrize("offset", range(1, 9))
def test_pointers_off_every_alignment(offset, dtype, device):
    memory = torch.randn(2, 5000, dtype=dtype, device=device)
    a, b = memory[0, offset:], memory[1, :-offset]
    assert_is_sum(add2(a, b), a, b)


@pytest.mark.parametrize("n", range(1, 40))
def test_every_tail(n, dtype, device):
    a, b = torch.randn(2, n, dtype=dtype, device=device)
    assert_is_sum(add2(a, b.clone()), a, b)


@pytest.mark.parametrize("dtypes", list(itertools.permutations(FLOATING, 2)), ids=str)
@pytest.mark.parametrize(
    "shapes", [((3, 4), (3, 4)), ((3, 1), (4,)), ((5,), ()), ((), ())], ids=str
)
def test_promotion(shapes, dtypes, device):
    a, b = (torch.randn(shape, dtype=dtype, device=device) for shape, dtype in zip(shapes, dtypes))
    assert_is_sum(add2(a, b), a, b)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
def test_every_16_bit_value_and_its_rounding(half, device):
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(half).to(device)
    other = every[torch.randperm(every.numel(), device=device)]
    for a, b in [(every, torch.zeros_like(every)), (every, other)]:
        expected = (a.float() + b.float()).to(half)
        torch.testing.assert_close(add2(a, b), expected, rtol=0, atol=0, equal_nan=True)


def test_special_values(dtype, device):
    special = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), torch.finfo(dtype).max]
    special += [torch.finfo(dtype).smallest_normal, torch.finfo(dtype).smallest_normal / 2]
    a = torch.tensor(special, dtype=dtype, device=device)[:, None]
    c, expected = add2(a, a.T), a + a.T
    torch.testing.assert_close(c, expected, rtol=0, atol=0, equal_nan=True)
    number = ~c.isnan()
    assert torch.equal(c[number].signbit(), expected[number].signbit())


def test_result_is_new_memory(device):
    a, b = torch.randn(2, 8, device=device)
    before = a.clone()
    add2(a, b).fill_(7)
    assert torch.equal(a, before)


def test_same_bits_at_every_call(dtype, device):
    a, b = torch.randn(2, 100_003, dtype=dtype, device=device)
    first = add2(a, b)
    assert all(torch.equal(first, add2(a, b)) for _ in range(5))


def test_keyword_arguments():
    a, b = torch.randn(2, 3)
    assert torch.equal(add2(b=b, a=a), add2(a, b))
    assert torch.equal(add2(a, b=b), add2(a, b))


FIVE = torch.ones(5)
BAD_CALLS = {
    "list": ((FIVE, [1.0]), TypeError, ["add2", "'b'", "list"]),
    "number": ((2.0, FIVE), TypeError, ["add2", "'a'", "float"]),
    "none": ((FIVE, None), TypeError, ["add2", "'b'", "NoneType"]),
    "numpy": ((FIVE, np.ones(5)), TypeError, ["add2", "'b'", "ndarray"]),
    "too few": ((FIVE,), TypeError, ["add2", "'b'"]),
    "too many": ((FIVE, FIVE, FIVE), TypeError, ["add2", "3"]),
    "integer": ((FIVE, FIVE.int()), NotImplementedError, ["add2", "'b'", "Int"]),
    "complex": ((FIVE.cfloat(), FIVE), NotImplementedError, ["add2", "'a'", "ComplexFloat"]),
    "bool": ((FIVE, FIVE > 0), NotImplementedError, ["add2", "'b'", "Bool"]),
    "sparse": ((FIVE, FIVE.to_sparse()), NotImplementedError, ["add2", "Sparse"]),
    "shapes": ((FIVE, torch.ones(2, 4)), RuntimeError, ["add2", "[5]", "[2, 4]", "broadcast"]),
    "empty": ((FIVE, torch.ones(0)), RuntimeError, ["add2", "[5]", "[0]", "broadcast"]),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_input(case):
    arguments, kind, parts = BAD_CALLS[case]
    with pytest.raises(kind) as caught:
        add2(*arguments)
    assert type(caught.value) is kind
    assert all(part in str(caught.value) for part in parts), caught.value


def test_unknown_keyword():
    with pytest.raises(TypeError, match=r"add2.*other"):
        add2(FIVE, other=FIVE)


@pytest.mark.gpu
@pytest.mark.parametrize("devices", [("cpu", "cuda"), ("cuda", "cpu")], ids=str)
def test_mixed_devices(devices):
    a, b = (FIVE.to(device) for device in devices)
    with pytest.raises(RuntimeError, match=r"add2.*'a' is on .*'b' on "):
        add2(a, b)


@pytest.mark.parametrize(
    "shapes",
    [((3, 4), (3, 4)), ((3, 1), (1, 4)), ((2, 3), (3,)), ((), (2,)), ((0, 2), (2,))],
    ids=str,
)
def test_gradcheck(shapes, device):
    a, b = (
        torch.randn(shape, dtype=torch.float64, device=device, requires_grad=True)
        for shape in shapes
    )
    assert gradcheck(add2, (a, b))
    assert gradgradcheck(add2, (a, b))
    # add2 is linear: only a function of its result has a second derivative that could be wrong.
    assert gradgradcheck(lambda a, b: add2(a * b, b).square(), (a, b))


@pytest.mark.parametrize("needed", [(True, False), (False, True), (True, True), (False, False)])
def test_gradient_of_any_subset(needed, dtype, device):
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


def test_gradients_that_are_expanded_or_not_contiguous(device):
    for grad in [
        torch.ones((), device=device).expand(4, 6),
        torch.randn(6, 4, device=device).T,
        torch.randn(8, 6, device=device)[::2],
    ]:
        a = torch.randn(4, 6, device=device, requires_grad=True)
        b = torch.randn(6, device=device, requires_grad=True)
        add2(a, b).backward(grad)
        assert torch.equal(a.grad, grad)
        torch.testing.assert_close(b.grad, grad.sum(0))


def test_one_tensor_as_both_arguments(device):
    a = torch.randn(5, device=device, requires_grad=True)
    add2(a, a).sum().backward()
    assert torch.equal(a.grad, torch.full_like(a, 2))


def test_no_grad_and_inference_mode(device):
    a, b = torch.randn(2, 5, device=device, requires_grad=True)
    with torch.no_grad():
        assert not add2(a, b).requires_grad
    with torch.inference_mode():
        c = add2(a, b)
        assert c.is_inference()
        assert_is_sum(add2(c, c), c, c)


def test_help_tells_all(compiled):
    for word in ["a + b", "float16", "bfloat16", "broadcast", "Raises", "gradient", "contiguous"]:
        assert word in add2.__doc__
    assert "a + b" in compiled.forward.__doc__
    assert "float32" in compiled.torch_launch_add2.__doc__


def test_model(device):
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
