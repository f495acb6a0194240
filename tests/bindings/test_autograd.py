"""Tests autograd of a recorded call: saved tensors, hooks, threads, errors, second gradients.

bindings/autograd.cpp records the calls of every op; until it is compiled, autograd.Function does.
"""

import warnings
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest
import torch

from bindings.add2 import add2
from bindings.lltm import lltm
from bindings.sigmoid import sigmoid, sigmoid_backward
from bindings.two_norm import two_norm
from tests.bindings.case import CASES, CASES_AS_NODES, as_tuple, each_case


def refuse(*_, **__):
    raise KeyError("the formula")


@each_case
def test_hooks_of_saved_tensors_pack_and_unpack_them(case, device):
    arguments = case.leaves(device)
    expected = case.gradients(arguments)
    pack, unpack = Mock(side_effect=torch.Tensor.cpu), Mock(side_effect=lambda x: x.to(device))
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        results = as_tuple(case.op(*arguments))
    assert pack.call_count == len(case.op.op.saved)
    total = sum(y.square().sum() for y in results)
    torch.testing.assert_close(torch.autograd.grad(total, arguments), expected)
    assert unpack.call_count == pack.call_count


def test_hook_that_fails_raises_its_own_error(device):
    def fail(_):
        raise KeyError("hook")

    x = torch.randn(3, device=device, requires_grad=True)
    hooks = torch.autograd.graph.saved_tensors_hooks
    with hooks(fail, lambda x: x), pytest.raises(KeyError, match="hook"):
        sigmoid(x)
    with hooks(lambda x: x, fail):
        y = sigmoid(x)
    with pytest.raises(KeyError, match="hook"):
        y.sum().backward()


@pytest.mark.parametrize("case", CASES_AS_NODES)
def test_compiled_autograd_has_the_same_gradients(case, device):
    arguments = case.leaves(device)
    expected = case.gradients(arguments)
    torch._dynamo.reset()
    compiler = lambda graph: torch.compile(graph, backend="eager", fullgraph=True)  # noqa: E731
    for _ in range(2):
        total = case.total(*arguments)
        with torch._dynamo.compiled_autograd._enable(compiler):
            total.backward()
        torch.testing.assert_close([x.grad for x in arguments], list(expected))
        for x in arguments:
            x.grad = None


@each_case
def test_backward_twice_needs_retain_graph(case, device):
    arguments = case.leaves(device)
    total = case.total(*arguments)
    first = torch.autograd.grad(total, arguments, retain_graph=True)
    assert all(map(torch.equal, first, torch.autograd.grad(total, arguments)))
    results = as_tuple(case.op(*arguments))
    torch.autograd.grad(results, arguments, results)
    if case.op.op.saved:
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(results, arguments, results)


def test_saved_tensor_that_was_modified_is_an_error(device):
    x = torch.randn(3, device=device, requires_grad=True)
    y = sigmoid(x)
    with torch.no_grad():
        y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    a, b = torch.randn(2, 3, device=device)
    norm = two_norm(a.requires_grad_(), b)
    b.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        norm.backward()


def test_result_may_be_modified_if_the_gradient_does_not_need_it(device):
    a, b = torch.randn(2, 3, device=device)
    c = add2(a.requires_grad_(), b)
    c.mul_(2)
    c.sum().backward()
    assert torch.equal(a.grad, torch.full_like(a, 2))


def test_inference_tensors_cannot_be_saved(device):
    with torch.inference_mode():
        b = torch.randn(3, device=device)
    a = torch.randn(3, device=device, requires_grad=True)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved"):
        two_norm(a, b)
    assert add2(a, b).requires_grad


def test_anomaly_mode_names_the_op_and_the_line(device):
    x = torch.tensor([-1.0], device=device, requires_grad=True)
    with warnings.catch_warnings(record=True) as warned, torch.autograd.detect_anomaly():
        y = sigmoid(x)  # this line
        with pytest.raises(RuntimeError, match=r"sigmoid_backward.* returned nan"):
            y.backward(torch.full_like(y, torch.nan))
    assert any("# this line" in str(warning.message) for warning in warned)


def test_hooks_of_tensors_and_nodes_are_called_in_order(device):
    x = torch.randn(3, device=device, requires_grad=True)
    seen = []
    y = sigmoid(x)
    y.register_hook(lambda grad: seen.append("result") or 2 * grad)
    y.retain_grad()
    y.grad_fn.register_prehook(lambda grads: seen.append("before"))
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append("after"))
    y.sum().backward()
    assert seen == ["result", "before", "after"]
    assert torch.equal(y.grad, torch.full_like(y, 2))
    torch.testing.assert_close(x.grad, (2 * y * (1 - y)).detach())
    assert y.grad_fn.next_functions[0][0].variable is x


@pytest.mark.parametrize("op", [add2, sigmoid, two_norm, lltm], ids=lambda op: op.__name__)
def test_first_gradient_executes_no_python(op, device, monkeypatch):
    case = next(case for case in CASES if case.name == op.__name__)
    arguments = case.leaves(device)
    total = case.total(*arguments)
    monkeypatch.setattr(op.op, "formula", refuse)
    gradients = torch.autograd.grad(total, arguments, retain_graph=True)
    with pytest.raises(KeyError, match="the formula"):
        torch.autograd.grad(case.total(*arguments), arguments, create_graph=True)
    assert all(bool(x.isfinite().all()) for x in gradients)


def test_formula_that_returns_the_wrong_values_is_an_error(device, monkeypatch):
    g, y = torch.rand(2, 3, device=device)
    for formula, error in [
        (lambda grad, g, y: (1, 2), TypeError),
        (lambda grad, g, y: (grad,), ValueError),
        (lambda grad, g, y: grad, ValueError),
    ]:
        monkeypatch.setattr(sigmoid_backward.op, "formula", formula)
        result = sigmoid_backward(g.requires_grad_(), y.requires_grad_())
        with pytest.raises(error):
            result.sum().backward()


def test_gradient_that_is_not_needed_is_not_computed(device, monkeypatch):
    asked = []

    def formula(grad, *_):
        return lambda: asked.append("a") or grad, lambda: asked.append("b") or grad

    monkeypatch.setattr(sigmoid_backward.op, "formula", formula)
    a, b = torch.randn(2, 3, device=device)
    sigmoid_backward(a, b.requires_grad_()).sum().backward()
    assert asked == ["b"]
    assert torch.equal(b.grad, torch.ones_like(b))


@each_case
def test_batched_gradients_equal_single_ones(case, device):
    arguments = case.leaves(device)
    results = as_tuple(case.op(*arguments))
    grads = [torch.randn(2, *y.shape, dtype=y.dtype, device=device) for y in results]
    both = torch.autograd.grad(results, arguments, grads, is_grads_batched=True, retain_graph=True)
    for i in range(2):
        one = torch.autograd.grad(results, arguments, [g[i] for g in grads], retain_graph=True)
        torch.testing.assert_close([x[i] for x in both], list(one))


def test_threads_that_share_a_graph_get_the_same_gradient(device):
    x = torch.randn(1000, device=device, requires_grad=True)
    total = sigmoid(x).sum()
    (expected,) = torch.autograd.grad(total, x, retain_graph=True)
    with ThreadPoolExecutor(4) as threads:
        again = threads.map(lambda _: torch.autograd.grad(total, x, retain_graph=True), range(80))
    assert all(torch.equal(gradient, expected) for (gradient,) in again)


def test_long_graphs_are_freed_without_recursion(device):
    x = y = torch.zeros(1, device=device, requires_grad=True)
    for _ in range(100_000):
        y = add2(y, x)
    del y
