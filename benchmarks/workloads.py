"""The calls that the benchmarks time: each op, forward and backward, ours and PyTorch's."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from benchmarks import classic


@dataclass(frozen=True)
class Workload:
    """An op in one direction.

    shapes(n) returns the shapes of the arguments. elements(n) returns how many elements are read
    and written, counting each input and each output once; a gradient's inputs are the tensors that
    the forward call has saved, and the gradient of its result. gradients_of has the positions of
    the arguments whose gradients are computed; if it is empty, the op is called without a gradient.
    classic is the classic implementation, for float32 on a GPU, or None.
    """

    name: str
    op: str
    eager: Callable
    shapes: Callable
    elements: Callable
    gradients_of: tuple = ()
    classic: Callable | None = None

    @property
    def ours(self):
        """The function that a user imports; the import builds it if necessary."""
        return getattr(importlib.import_module(f"bindings.{self.op}"), self.op)

    def inputs(self, n, dtype, device):
        # Uniform in [-1, 1], which every op accepts.
        inputs = [torch.rand(s, dtype=dtype, device=device) * 2 - 1 for s in self.shapes(n)]
        for position in self.gradients_of:
            inputs[position].requires_grad_()
        return inputs

    def call(self, function, inputs):
        """Returns a function of no arguments that does the work once with the given function."""
        if not self.gradients_of:
            return lambda: function(*inputs)
        results = as_tuple(function(*inputs))
        grads = [torch.ones_like(result) for result in results]
        wanted = [inputs[position] for position in self.gradients_of]
        return lambda: torch.autograd.grad(results, wanted, grads, retain_graph=True)


def as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


def replayed(function):
    """Returns the function under torch.compile in the mode reduce-overhead.

    The result is memory of a CUDA graph and is valid until the next call.
    """
    compiled = torch.compile(function, mode="reduce-overhead")

    def call(*inputs):
        torch.compiler.cudagraph_mark_step_begin()
        return compiled(*inputs)

    return call


def vectors(count):
    return lambda n: [(n,)] * count


def _my_op(x, y):
    return 3 * x - y


def _two_norm(a, b):
    return torch.linalg.vector_norm(a - b)


def _trilinear_interpolation(feats, points):
    u, v, w = ((points + 1) / 2)[:, None].unbind(-1)
    a, b, c, d = (1 - v) * (1 - w), (1 - v) * w, v * (1 - w), v * w
    low = a * feats[:, 0] + b * feats[:, 1] + c * feats[:, 2] + d * feats[:, 3]
    high = a * feats[:, 4] + b * feats[:, 5] + c * feats[:, 6] + d * feats[:, 7]
    return (1 - u) * low + u * high


def cells(n, features):
    """Returns the number of cells with 2 n corner values: 2^20 for n = 2^28 and 64 features."""
    return max(1, n // (4 * features))


def trilinear(features):
    """Returns the workloads of the op with this many features: forward and two gradients."""
    name = f"trilinear, F = {features}"
    forward = Workload(
        name,
        "trilinear_interpolation",
        _trilinear_interpolation,
        lambda n: [(cells(n, features), 8, features), (cells(n, features), 3)],
        lambda n: cells(n, features) * (9 * features + 3),
        classic=classic.trilinear_interpolation,
    )
    points = {"elements": lambda n: cells(n, features) * (9 * features + 6), "classic": None}
    return [
        forward,
        replace(forward, name=f"{name}, backward for feats", gradients_of=(0,)),
        replace(forward, name=f"{name}, backward for points", gradients_of=(1,), **points),
    ]


def of_vectors(name, op, eager, inputs, elements, gradients_of=()):
    """Returns a workload on vectors; elements: those read and written for each vector index."""
    known = getattr(classic, op)
    return Workload(name, op, eager, vectors(inputs), lambda n: elements * n, gradients_of, known)


WORKLOADS = [
    of_vectors("add2", "add2", torch.add, 2, 3),
    of_vectors("my_op", "my_op", _my_op, 2, 3),
    of_vectors("my_op backward", "my_op", _my_op, 2, 3, (0, 1)),
    of_vectors("sigmoid", "sigmoid", torch.sigmoid, 1, 2),
    of_vectors("sigmoid backward", "sigmoid", torch.sigmoid, 1, 3, (0,)),
    of_vectors("sum_single", "sum_single", torch.sum, 1, 1),
    of_vectors("two_norm", "two_norm", _two_norm, 2, 2),
    of_vectors("two_norm backward", "two_norm", _two_norm, 2, 4, (0, 1)),
    *trilinear(64),
    *trilinear(256),
]
