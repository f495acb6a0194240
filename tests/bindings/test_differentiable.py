"""Tests each path of a call of a @differentiable function, with add2 as the example.

The compiled function handles only plain tensors. These tests check that its fast path leaves out
nothing that PyTorch does between a call and a kernel (tracing, transforms, modes, subclasses, ...).
"""

import copy
import importlib
import inspect
import pickle

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import bindings.add2
import bindings.shared.differentiable
from bindings.add2 import add2
from bindings.sigmoid import sigmoid_backward

registered = torch.ops.jit_loader.add2


@pytest.fixture
def ab(device):
    a, b = torch.randn(2, 3, 4, device=device)
    return a, b


def square_sum(function):
    return lambda a, b: function(a, b).square().sum()


def test_op_is_a_python_function():
    assert inspect.isfunction(add2)
    assert str(inspect.signature(add2)) == "(a, b)"
    assert pickle.loads(pickle.dumps(add2)) is add2
    assert copy.deepcopy(add2) is add2


def test_registered_op_equals_the_function(ab):
    a, b = (x.requires_grad_() for x in ab)
    assert torch.equal(registered(a, b), add2(a, b))
    registered(a, b).square().sum().backward()
    torch.testing.assert_close(a.grad, 2 * (a + b).detach())
    assert torch.equal(registered(a.detach(), b.detach()), a + b)


def test_fake_and_meta_tensors_have_shape_and_dtype():
    a, b = torch.empty(3, 1, device="meta"), torch.empty(4, dtype=torch.double, device="meta")
    c = add2(a, b)
    assert (c.shape, c.dtype, c.device.type) == ((3, 4), torch.double, "meta")
    with torch._subclasses.FakeTensorMode():
        c = add2(torch.empty(3, 1), torch.empty(4))
        assert (c.shape, c.device.type) == ((3, 4), "cpu")
        assert isinstance(c, torch._subclasses.FakeTensor)


@pytest.mark.parametrize("function", [add2, registered], ids=["function", "registered"])
def test_func_grad_and_jacrev_agree_with_torch_add(function, ab):
    both = torch.func.grad(square_sum(function), argnums=(0, 1))(*ab)
    expected = torch.func.grad(square_sum(torch.add), argnums=(0, 1))(*ab)
    torch.testing.assert_close(both, expected)
    a, b = ab[0][0], ab[1][:, :1]
    for argnums in [0, 1]:
        torch.testing.assert_close(
            torch.func.jacrev(function, argnums)(a, b), torch.func.jacrev(torch.add, argnums)(a, b)
        )


def test_func_grad_of_grad_agrees_with_torch_add(device):
    def derivative(function):
        return torch.func.grad(torch.func.grad(lambda x: function(x * x, x) * x))

    x = torch.tensor(2.0, device=device)
    torch.testing.assert_close(derivative(add2)(x), derivative(torch.add)(x))


@pytest.mark.parametrize("function", [add2, registered], ids=["function", "registered"])
@pytest.mark.parametrize(
    ("in_dims", "shapes"),
    [
        ((0, 0), ((5, 3), (5, 3))),
        ((0, None), ((5, 3), (3,))),
        ((None, 1), ((3,), (3, 5))),
        ((2, 0), ((3, 4, 5), (5, 4))),
        ((0, 0), ((5,), (5, 2, 3))),
        ((-1, None), ((3, 5), ())),
    ],
)
def test_vmap_agrees_with_torch_add(function, in_dims, shapes, device):
    a, b = (torch.randn(shape, device=device) for shape in shapes)
    torch.testing.assert_close(
        torch.vmap(function, in_dims)(a, b), torch.vmap(torch.add, in_dims)(a, b)
    )


def test_nested_vmap_and_gradients_under_vmap_agree_with_torch_add(device):
    a, b = torch.randn(5, 3, device=device), torch.randn(4, 3, device=device)

    def pairs(function):
        inner = torch.vmap(function, in_dims=(None, 0))
        return torch.vmap(inner, in_dims=(0, None))(a, b)

    torch.testing.assert_close(pairs(add2), pairs(torch.add))
    ours, theirs = (
        pairs(torch.func.grad(square_sum(function), argnums=(0, 1)))
        for function in (add2, torch.add)
    )
    torch.testing.assert_close(ours, theirs)
    ours, theirs = (
        torch.func.grad(lambda a: torch.vmap(function)(a, a[:, :1]).square().sum())(a)  # noqa: B023
        for function in (add2, torch.add)
    )
    torch.testing.assert_close(ours, theirs)


def test_vmap_of_ordinary_tensors_has_a_gradient(device):
    a = torch.randn(5, 3, device=device, requires_grad=True)
    torch.vmap(add2)(a, a).sum().backward()
    assert torch.equal(a.grad, torch.full_like(a, 2))


@pytest.mark.parametrize("function", [add2, registered], ids=["function", "registered"])
def test_forward_mode_raises_and_is_never_zero(function, ab, compiled):
    a, b = ab
    with pytest.raises(NotImplementedError, match="add2"):
        torch.func.jvp(function, (a, b), (a, b))
    with pytest.raises(NotImplementedError, match="add2"):
        torch.func.jacfwd(function)(a, b)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(a, b)
        for other in [b, b.clone().requires_grad_()]:
            with pytest.raises(NotImplementedError, match="add2"):
                function(dual, other)
            with torch.no_grad(), pytest.raises(NotImplementedError, match="add2"):
                function(other, dual)
        with pytest.raises(NotImplementedError, match="add2"):
            compiled.forward(dual, b)
        assert torch.equal(function(b, b), b + b)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
def test_autocast_has_no_effect_as_with_torch_add(half, ab):
    a, b = ab
    with torch.autocast(a.device.type, dtype=half):
        assert add2(a, b).dtype == torch.add(a, b).dtype == torch.float32
        assert add2(a.to(half), b).dtype == torch.add(a.to(half), b).dtype
        a.requires_grad_()
        add2(a.to(half), b).sum().backward()
    assert torch.equal(a.grad, torch.ones_like(a))


class Labelled(torch.Tensor):
    """A subclass without its own __torch_function__ keeps its class through PyTorch's ops."""


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


def test_tensor_subclasses_are_handled_as_by_pytorchs_ops(ab):
    a, b = ab
    assert type(add2(a.as_subclass(Labelled), b)) is Labelled
    assert type(add2(torch.nn.Parameter(a), b)) is torch.Tensor
    Recording.seen.clear()
    add2(b, a.as_subclass(Recording))
    assert Recording.seen == [registered.default]
    assert add2(TensorLike(), b) == "handled"


def test_modes_see_the_call(ab):
    seen = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    class Dispatches(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    for mode in [Functions, Dispatches]:
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


def test_compiled_function_handles_only_plain_calls(ab):
    a, b = ab
    for arguments in [(), (a,), (a, b, a), (a, [1.0]), (None, b), (a, b.as_subclass(Labelled))]:
        assert add2.op.try_call(*arguments) is NotImplemented


def test_gradients_that_are_not_needed_are_not_computed(ab):
    asked = []

    def formula(grad, *_):
        return lambda: asked.append("a") or grad, lambda: asked.append("b") or grad

    original = sigmoid_backward.op.formula
    sigmoid_backward.gradient(formula)
    try:
        a, b = ab[0], ab[1].requires_grad_()
        sigmoid_backward(a, b).sum().backward()
    finally:
        sigmoid_backward.gradient(original)
    assert asked == ["b"]
    assert torch.equal(b.grad, torch.ones_like(b))


def test_functions_imported_earlier_use_a_new_build(ab, monkeypatch):
    a, b = ab
    uses = []

    def load_op(name, on_load):
        uses.append(on_load)
        return original(name, project=project, on_load=on_load)

    original = bindings.shared.differentiable.load_op
    project = bindings.__path__[0].rpartition("/")[0]
    monkeypatch.setattr(bindings.shared.differentiable, "load_op", load_op)
    held = importlib.reload(bindings.add2).add2

    class NewBuild:
        @staticmethod
        def forward(a, b):
            return a - b

        @staticmethod
        def differentiable_forward(*_):
            return lambda a, b: a - b

    uses[0](NewBuild)
    assert torch.equal(held(a, b), a - b)
    assert torch.equal(torch.ops.jit_loader.add2(a, b), a - b)
    importlib.reload(bindings.add2)


def test_reload_registers_the_op_again(ab):
    a, b = ab
    for _ in range(2):
        reloaded = importlib.reload(bindings.add2)
        assert torch.equal(reloaded.add2(a, b), a + b)
        assert torch.equal(torch.ops.jit_loader.add2(a, b), a + b)
        assert torch.equal(torch.func.grad(square_sum(reloaded.add2))(a, b), 2 * (a + b))
    assert torch.equal(add2(a, b), a + b), "the function imported earlier no longer works"
