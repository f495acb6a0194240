"""Tests every op with torch.compile, torch.func, vmap, autocast and tensor subclasses."""

import copy
import importlib
import inspect
import pickle

import pytest
import torch

from tests.bindings.case import CASES, CASES_AS_NODES, as_tuple, each_case


@each_case
def test_op_is_a_python_function(case):
    # Looked up by name, because other tests reload its module.
    op = getattr(importlib.import_module(case.op.__module__), case.name)
    assert inspect.isfunction(op)
    assert tuple(inspect.signature(op).parameters) == op.op.parameters
    assert pickle.loads(pickle.dumps(op)) is op
    assert copy.deepcopy(op) is op


@pytest.mark.parametrize(
    "dtype", [torch.float64, pytest.param(torch.bfloat16, marks=pytest.mark.slow)], ids=str
)
@pytest.mark.parametrize("requires_grad", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize(
    "which", [-1, *(pytest.param(i, marks=pytest.mark.slow) for i in (0, 1, -2))]
)
@each_case
def test_op_passes_opcheck(case, which, requires_grad, dtype, device):
    arguments = case.arguments(case.shapes[which], dtype, device, requires_grad)
    torch.library.opcheck(case.registered, arguments)


class Labelled(torch.Tensor):
    """A subclass without its own __torch_function__ keeps its class through PyTorch's ops."""


@each_case
def test_registered_op_equals_the_function(case, device):
    """With a subclass, an autograd.Function is recorded, as it is until autograd.cpp is built."""
    arguments = case.leaves(device, torch.float32)
    ours = as_tuple(case.op(*arguments))
    expected = case.gradients(arguments)
    for inputs in (arguments, [x.as_subclass(Labelled) for x in arguments]):
        registered = as_tuple(case.registered(*inputs))[: len(ours)]
        assert all(map(torch.equal, ours, registered))
        gradients = torch.autograd.grad(sum(x.square().sum() for x in registered), arguments)
        plain = [x.as_subclass(torch.Tensor) for x in gradients]
        torch.testing.assert_close(plain, list(expected))


@pytest.mark.parametrize("case", CASES_AS_NODES)
def test_compiled_forward_and_backward_agree_with_eager(case, device):
    compile_forward_and_backward(case, "aot_eager", device)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case.name == "lltm"])
def test_forward_and_backward_compiled_by_inductor_agree_with_eager(case, device):
    """Inductor takes 15 s to compile C++, so only one op is tested."""
    compile_forward_and_backward(case, "inductor", device)


def compile_forward_and_backward(case, backend, device):
    def function(*x):
        return case.total(*(t.sin() for t in x))

    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    for flag in (False, True):
        arguments = case.arguments(case.shapes[-1], torch.float32, device, requires_grad=flag)
        torch.testing.assert_close(compiled(*arguments), function(*arguments))
    gradients = torch.autograd.grad(compiled(*arguments), arguments)
    expected = torch.autograd.grad(function(*arguments), arguments)
    torch.testing.assert_close(gradients, expected, rtol=1e-4, atol=1e-4)


@each_case
def test_meta_tensors_have_shape_dtype_and_strides(case, dtype):
    for shapes in case.shapes:
        arguments = case.arguments(shapes, dtype)
        results = as_tuple(case.op(*(x.to("meta") for x in arguments)))
        for fake, real in zip(results, as_tuple(case.op(*arguments))):
            assert fake.is_meta
            assert (fake.shape, fake.dtype) == (real.shape, real.dtype)
            assert fake.stride() == real.stride()


@pytest.mark.parametrize("requires_grad", [False, True])
@each_case
def test_meta_tensor_beside_one_of_another_device_is_refused(case, requires_grad, device):
    arguments = case.arguments(case.shapes[-1], torch.float32, device, requires_grad)
    first, *others = case.op.op.parameters
    for position in range(len(arguments) if others else 0):
        mixed = [x.to("meta") if i == position else x for i, x in enumerate(arguments)]
        second = others[max(position - 1, 0)]
        expected = rf"{case.name}\(\): argument '{first}' is on .* and '{second}' on .*one device"
        with pytest.raises(RuntimeError, match=expected):
            case.op(*mixed)


@each_case
def test_func_grad_and_jacrev_agree_with_autograd(case, device):
    arguments = case.arguments(case.shapes[-1], torch.float64, device)
    every = tuple(range(len(arguments)))
    expected = case.gradients(arguments)
    torch.testing.assert_close(torch.func.grad(case.total, every)(*arguments), expected)
    for position in every:
        jacobian = torch.func.jacrev(case.total, position)(*arguments)
        torch.testing.assert_close(jacobian, expected[position])


@each_case
def test_func_grad_of_grad_agrees_with_autograd(case, device):
    arguments = case.arguments(case.shapes[-1], torch.float64, device)

    def first_squared(*x):
        return torch.func.grad(case.total)(*x).square().sum()

    by_func = torch.func.grad(first_squared)(*arguments)
    leaf = arguments[0].clone().requires_grad_()
    (first,) = torch.autograd.grad(case.total(leaf, *arguments[1:]), leaf, create_graph=True)
    (expected,) = torch.autograd.grad(first.square().sum(), leaf)
    torch.testing.assert_close(by_func, expected)


@pytest.mark.parametrize(
    ("case", "in_dims"),
    [
        pytest.param(case, in_dims, id=f"{case.name}-{in_dims}")
        for case in CASES
        for in_dims in case.vmap_dims
    ],
)
def test_vmap_agrees_with_separate_calls(case, in_dims, device):
    def batched(shape, dim):
        if dim is None:
            return shape
        place = dim if dim >= 0 else len(shape) + 1 + dim
        return (*shape[:place], 3, *shape[place:])

    shapes = [batched(*pair) for pair in zip(case.shapes[case.vmap_of], in_dims)]
    arguments = case.arguments(shapes, torch.float64, device)
    slices = [
        [x if dim is None else x.select(dim, i) for x, dim in zip(arguments, in_dims)]
        for i in range(3)
    ]
    for function in (case.op, torch.func.grad(case.total)):
        ours = as_tuple(torch.vmap(function, in_dims)(*arguments))
        each = zip(*(as_tuple(function(*slice_)) for slice_ in slices))
        for result, expected in zip(ours, each):
            torch.testing.assert_close(result, torch.stack(expected))
    empty = [x if dim is None else x.narrow(dim, 0, 0) for x, dim in zip(arguments, in_dims)]
    results = as_tuple(torch.vmap(case.op, in_dims)(*empty))
    assert [x.shape for x in results] == [(0, *x.shape) for x in as_tuple(case.op(*slices[0]))]


@each_case
def test_forward_mode_raises_and_is_never_zero(case, device):
    arguments = case.arguments(case.shapes[-1], torch.float32, device)
    for function in (case.op, case.registered):
        with pytest.raises(NotImplementedError, match=case.name):
            torch.func.jvp(function, arguments, arguments)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(arguments[0], arguments[0])
            for flag in (False, True):
                rest = [x.detach().requires_grad_(flag) for x in arguments[1:]]
                with pytest.raises(NotImplementedError, match=case.name):
                    function(dual, *rest)


@each_case
def test_subclasses_are_kept_and_parameters_give_plain_tensors(case, device):
    arguments = case.arguments(case.shapes[-1], torch.float32, device)
    labelled = [arguments[0].as_subclass(Labelled), *arguments[1:]]
    assert all(type(x) is Labelled for x in as_tuple(case.op(*labelled)))
    parameters = [torch.nn.Parameter(x) for x in arguments]
    assert all(type(x) is torch.Tensor for x in as_tuple(case.op(*parameters)))
