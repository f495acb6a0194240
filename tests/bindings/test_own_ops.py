"""Tests ops that this project does not have: integer results, numbers, and wrong gradients."""

import shutil
import sys
import types

import pytest
import torch

import bindings.add2
import bindings.my_op
from bindings.shared.differentiable import differentiable
from tests.support.extension import ROOT

BINDING = """\
#include "bindings/shared/op.h"
using namespace bindings;
at::Tensor same(const at::Tensor& x) { return x; }
at::Tensor copy(const at::Tensor& x) { return x.clone(); }
at::Tensor repeated(const at::Tensor& x, int64_t n) { return x.clone(); }
std::tuple<at::Tensor, at::Tensor> rounded(const at::Tensor& x) {
  return {x.clone(), x.to(at::kLong)};
}
at::Tensor gradient(const at::Tensor& grad) { return grad; }
at::Tensor gradient_of_rounded(const at::Tensor& grad, const at::Tensor&) { return grad; }
PYTHON_MODULE(module) {
  define_differentiable<same, gradient>(module, "same", "", "x");
  define_differentiable<copy, gradient>(module, "copy", "", "x");
  define_differentiable<repeated>(module, "repeated", "", "x", "n");
  define_differentiable<rounded, gradient_of_rounded>(module, "rounded", "", "x");
}
"""


def write_project(folder, binding):
    for shared in ("kernels/shared", "bindings/shared"):
        shutil.copytree(ROOT / shared, folder / shared)
    (folder / "bindings/own.cpp").write_text(binding)
    return str(folder)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """Returns own(schema, function=..., **options), which makes the function of an op."""
    project, made = write_project(tmp_path_factory.mktemp("own") / "project", BINDING), []

    def make(schema, function, **options):
        body = (lambda x, n: None) if "n) ->" in schema else (lambda x: None)
        body.__name__ = schema.partition("(")[0]
        # The first op is named "own", as the build.
        build = {"build_of": made[0]} if made else {"project": project}
        op = differentiable(schema, function=function, **build, **options)(body)
        made.append(op)
        return op

    make("own(Tensor x) -> Tensor", "copy")
    return make


def leaf():
    return torch.ones(3, requires_grad=True)


def test_result_that_is_the_argument_is_an_error(own):
    same, x = own("own_same(Tensor x) -> Tensor", "same"), leaf()
    with pytest.raises(RuntimeError, match=r"returned one of its arguments.*x\.clone"):
        same(x)
    assert x.is_leaf
    assert same(x.detach()) is not None


def test_integer_result_has_no_gradient(own):
    rounded, x = own("own_rounded(Tensor x) -> (Tensor y, Tensor n)", "rounded"), leaf()
    y, n = rounded(x)
    assert (y.requires_grad, n.requires_grad) == (True, False)
    n.numpy()
    (y * n).sum().backward()
    assert torch.equal(x.grad, torch.ones(3))


def test_a_second_gradient_without_a_formula_is_an_error(own):
    copy, x = own("own_copy(Tensor x) -> Tensor", "copy"), leaf()
    copy(x).sum().backward()
    with pytest.raises(RuntimeError, match="own_copy has no formula"):
        torch.autograd.grad(copy(x).square().sum(), x, create_graph=True)


def test_formula_with_shapes_takes_numbers(own):
    repeated = own("own_repeated(Tensor x, int n) -> Tensor", "repeated")
    repeated.gradient(lambda grad, shapes: (grad * len(shapes[0]), None))
    assert torch.equal(torch.func.grad(lambda x: repeated(x, 2).sum())(leaf()), torch.ones(3))
    x = leaf()
    repeated(x, 2).sum().backward()
    assert torch.equal(x.grad, torch.ones(3))


def test_arguments_that_do_not_fit_are_an_error(own):
    """Those of the schema, the function, the binding and `saves`."""
    for schema, function, saved, message in [
        ("own_saved(Tensor x) -> Tensor", "copy", "x", "1 parameters that are tensors, but gets 2"),
        ("own_number(Tensor x, int n) -> Tensor", "repeated", "n", "'n', which is not a tensor"),
        ("own_other(Tensor x) -> Tensor", "copy", "y", "results, x, output; it has y"),
        ("own_renamed(Tensor y) -> Tensor", "copy", "y", r"must have .* own_renamed\(x\)"),
        ("own_fewer(Tensor x) -> Tensor", "repeated", "x", "types Tensor, .* of Tensor, int"),
        ("own_float(Tensor x, float n) -> Tensor", "repeated", "x", "Tensor, float, .*Tensor, int"),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            own(schema, function, saves=[saved])


def test_another_thread_may_be_importing_dtensors(monkeypatch):
    name = "torch.distributed.tensor"
    monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    gradient = torch.func.grad(lambda x: bindings.add2.add2(x, x).sum())(torch.ones(3))
    assert torch.equal(gradient, torch.full((3,), 2.0))


def test_compiled_autograd_with_a_result_that_is_not_used_takes_other_shapes():
    compile_graphs = torch.compile(backend="eager")
    for n in (4, 6, 9):
        g = torch.randn(n, requires_grad=True)
        dx, _ = bindings.my_op.my_op_backward(g)
        with torch._dynamo.compiled_autograd._enable(compile_graphs, dynamic=True):
            dx.sum().backward()
        torch.testing.assert_close(g.grad, torch.full((n,), 3.0))
