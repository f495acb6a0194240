"""Tests the kernels in C++ that PyTorch's dispatcher calls: graphs of torch.compile use them."""

import sys
from pathlib import Path

import pytest
import torch

import bindings
import jit_loader
from bindings.shared.differentiable import differentiable
from tests.bindings.test_own_ops import write_project

WRAPPERS = str(Path(bindings.__file__).parent)
BINDING = """\
#include <ATen/ops/zeros_like.h>
#include "bindings/shared/op.h"
using namespace bindings;
at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& y, int64_t i, double d,
                   bool b, std::array<bool, 2> flags) {
  const double sum = double(i) + d + (b ? 1000 : 0) + (flags[0] ? 1e4 : 0) + (flags[1] ? 1e5 : 0);
  return x.mul(FACTOR).add(sum).add(y ? *y : at::zeros_like(x));
}
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gradients(
    const at::Tensor& grad) {
  return {grad.mul(FACTOR), grad, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
}
PYTHON_MODULE(module) {
  define_differentiable<forward, gradients>(module, "forward", "", "x", "y", "i", "d", "b",
                                            "flags");
}
"""


def write_binding(project, factor):
    Path(project, "bindings", "many.cpp").write_text(BINDING.replace("FACTOR", str(factor)))


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """An op with an argument of each type that a binding may take; many.project is its project."""
    project = write_project(tmp_path_factory.mktemp("many") / "project", "")
    write_binding(project, 2)

    def fake(x, *_):
        return torch.empty_like(x)

    schema = "many(Tensor x, Tensor? y, int i, float d, bool b, bool[2] flags) -> Tensor"

    @differentiable(schema, project=project, fake=fake)
    def many(x, y, i, d, b, flags):
        """An op of the tests."""

    @many.gradient
    def _(grad):
        raise AssertionError("the gradient in C++ is used")

    many.project = project
    return many


def frames_in_bindings(function, *args):
    """Returns (result, the names of functions of bindings/ that Python executed)."""
    found = []

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(WRAPPERS):
            found.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        result = function(*args)
    finally:
        sys.setprofile(None)
    return result, found


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("inference", [False, True])
def test_call_of_the_registered_op_runs_no_python(device, requires_grad, inference):
    with torch.inference_mode(inference):
        x = torch.ones(3, device=device, requires_grad=requires_grad)
        torch.ops.jit_loader.add2(x, x)  # takes the kernels in C++, if they are compiled
        result, frames = frames_in_bindings(torch.ops.jit_loader.add2, x, x)
    assert not frames
    assert result.tolist() == [2, 2, 2]
    assert result.requires_grad == (requires_grad and not inference)
    if result.requires_grad:
        assert torch.autograd.grad(result.sum(), x)[0].tolist() == [2, 2, 2]


@pytest.mark.slow
def test_arguments_of_every_type(many):
    registered, x = torch.ops.jit_loader.many, torch.ones(2)
    y = torch.tensor([0.5, 0.25])
    assert registered(x, y, 1, 2.5, True, [True, False]).tolist() == [11006, 11005.75]
    assert registered(x, None, -3, 4, False, [False, True]).tolist() == [100003, 100003]
    with pytest.raises(RuntimeError, match="expected 2 bools"):
        registered(x, y, 1, 1.0, True, [True])


@pytest.mark.slow
def test_gradient_of_the_registered_op(many):
    x, y = (torch.ones(2, requires_grad=True) for _ in range(2))
    result = torch.ops.jit_loader.many(x, y, 1, 1.0, True, [True, True])
    gradients = torch.autograd.grad(result.sum(), [x, y])
    assert [gradient.tolist() for gradient in gradients] == [[2, 2], [1, 1]]


@pytest.mark.slow
def test_graph_that_was_compiled_before_an_edit_calls_the_new_code(many):
    arguments = torch.ones(2), None, 0, 0.0, False, [False, False]
    graph = torch.compile(lambda *args: many(*args), backend="aot_eager", fullgraph=True)
    assert graph(*arguments).tolist() == [2, 2]
    write_binding(many.project, 3)
    jit_loader.load_op("many", project=many.project)
    result, frames = frames_in_bindings(graph, *arguments)
    assert result.tolist() == [3, 3]
    assert not frames
