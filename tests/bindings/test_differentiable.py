"""Tests each path of a call of a @differentiable function, with add2 as the example.

The compiled function handles only plain tensors. These tests check that its fast path leaves out
nothing that PyTorch does between a call and a kernel (tracing, transforms, modes, subclasses, ...).
"""

import importlib

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import bindings.add2
from bindings.add2 import add2

registered = torch.ops.jit_loader.add2


@pytest.fixture
def ab(device):
    a, b = torch.randn(2, 3, 4, device=device)
    return a, b


def square_sum(function):
    return lambda a, b: function(a, b).square().sum()


@pytest.mark.parametrize(
    ("in_dims", "shapes"),
    [((0, None), ((5, 3), (3,))), ((0, 0), ((5,), (5, 2, 3))), ((-1, None), ((3, 5), ()))],
)
def test_vmap_aligns_arguments_of_other_ranks(in_dims, shapes, device):
    a, b = (torch.randn(shape, device=device) for shape in shapes)
    torch.testing.assert_close(
        torch.vmap(add2, in_dims)(a, b), torch.vmap(torch.add, in_dims)(a, b)
    )


def test_nested_vmap_and_gradients_through_vmap_agree_with_torch_add(device):
    a, b = torch.randn(5, 3, device=device), torch.randn(4, 3, device=device)

    def pairs(function):
        inner = torch.vmap(torch.func.grad(square_sum(function), argnums=(0, 1)), in_dims=(None, 0))
        return torch.vmap(inner, in_dims=(0, None))(a, b)

    def through(function):
        return torch.func.grad(lambda a: torch.vmap(function)(a, a[:, :1]).square().sum())(a)

    torch.testing.assert_close(pairs(add2), pairs(torch.add))
    torch.testing.assert_close(through(add2), through(torch.add))
    a.requires_grad_()
    torch.vmap(add2)(a, a).sum().backward()
    assert torch.equal(a.grad, torch.full_like(a, 2))


def test_autocast_has_no_effect_as_with_torch_add(ab):
    a, b = ab
    with torch.autocast(a.device.type, dtype=torch.bfloat16):
        assert add2(a, b).dtype == torch.add(a, b).dtype == torch.float32
        assert add2(a.bfloat16(), b).dtype == torch.float32


class Recording(torch.Tensor):
    seen: list = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.seen.append(function)
        return super().__torch_function__(function, types, args, kwargs or {})


class TensorLike:
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return "handled"


def test_torch_function_of_an_argument_is_called(ab):
    a, b = ab
    Recording.seen.clear()
    add2(b, a.as_subclass(Recording))
    assert Recording.seen == [registered.default]
    assert add2(TensorLike(), b) == "handled"


def test_modes_see_the_call(ab):
    seen = []

    def see(self, function, types, args=(), kwargs=None):
        seen.append(function)
        return function(*args, **(kwargs or {}))

    functions = type("Functions", (TorchFunctionMode,), {"__torch_function__": see})
    dispatches = type("Dispatches", (TorchDispatchMode,), {"__torch_dispatch__": see})
    for mode in [functions, dispatches]:
        for flag in [False, True]:
            a, b = (x.detach().requires_grad_(flag) for x in ab)
            seen.clear()
            with mode():
                c = add2(a, b)
            assert registered.default in seen
            assert c.requires_grad == flag
            torch.testing.assert_close(c, a + b)


def test_tensors_with_a_negative_bit_and_zero_tensors_are_added(ab):
    a, b = ab
    negative = torch.complex(a, b).conj().imag
    assert negative.is_neg()
    assert torch.equal(add2(negative, a), a - b)
    assert torch.equal(registered(a, negative), a - b)
    assert torch.equal(add2(torch._efficientzerotensor(a.shape, device=a.device), b), b)


def test_compiled_function_refuses_special_tensors(ab, compiled):
    a, b = ab
    for bad in [
        torch.complex(a, b).conj().imag,
        torch._efficientzerotensor(a.shape, device=a.device),
        a.to_sparse(),
        a.to("meta"),
    ]:
        with pytest.raises(NotImplementedError, match=r"add2\(\): argument 'a'"):
            compiled.forward(bad, b)
        assert add2.op.try_call(bad, b) is NotImplemented
    with pytest.raises(NotImplementedError, match="add2"):
        torch.vmap(compiled.forward)(a, b)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(a, b)
        for call in [compiled.forward, torch.no_grad()(add2)]:
            with pytest.raises(NotImplementedError, match="add2"):
                call(b, dual)
        assert torch.equal(add2(b, b), b + b)
    for arguments in [(), (a,), (a, b, a), (a, [1.0]), (None, b), (a, b.as_subclass(Recording))]:
        assert add2.op.try_call(*arguments) is NotImplemented


def test_reload_registers_the_op_again(ab):
    a, b = ab
    for _ in range(2):
        reloaded = importlib.reload(bindings.add2)
        assert torch.equal(reloaded.add2(a, b), a + b)
        assert torch.equal(torch.ops.jit_loader.add2(a, b), a + b)
        assert torch.equal(torch.func.grad(square_sum(reloaded.add2))(a, b), 2 * (a + b))
    assert torch.equal(add2(a, b), a + b), "the function imported earlier no longer works"
