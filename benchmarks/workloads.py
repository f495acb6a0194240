"""The calls of the benchmarks: each op in each direction, ours and in PyTorch's operations."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import torch

from benchmarks import classic


@dataclass(frozen=True)
class Workload:
    """An op in one direction.

    shapes(n): the arguments' shapes. elements(n): how many elements are read and written, each
    input once and each output once. gradients_of: the positions of the arguments whose gradients
    are computed; if there are none, the op itself is called without a gradient. classic: the
    classic implementation, for float32 on a GPU, if there is one in this direction.
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
        # Uniform in [-1, 1], which every op's arguments may be.
        inputs = [torch.rand(s, dtype=dtype, device=device) * 2 - 1 for s in self.shapes(n)]
        for position in self.gradients_of:
            inputs[position].requires_grad_()
        return inputs

    def call(self, function, inputs):
        """A function of no arguments that does the work once, by this function."""
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

    Its result, memory of a CUDA graph, is valid until the next call.
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
    """How many cells make 2 n values at their corners: 2^20 of 64 features for n = 2^28."""
    return max(1, n // (4 * features))


def trilinear(features):
    """The op with so many features, in its three directions."""
    shapes = lambda n: [(cells(n, features), 8, features), (cells(n, features), 3)]  # noqa: E731
    name = f"trilinear, F = {features}"
    op, eager = "trilinear_interpolation", _trilinear_interpolation
    known = classic.trilinear_interpolation
    return [
        Workload(
            name,
            op,
            eager,
            shapes,
            lambda n: cells(n, features) * (9 * features + 3),
            classic=known,
        ),
        Workload(
            f"{name}, backward for feats",
            op,
            eager,
            shapes,
            lambda n: cells(n, features) * (9 * features + 3),
            (0,),
            known,
        ),
        Workload(
            f"{name}, backward for points",
            op,
            eager,
            shapes,
            lambda n: cells(n, features) * (9 * features + 6),
            (1,),
        ),
    ]


def of_vectors(name, op, eager, inputs, elements, gradients_of=()):
    """An op of so many vectors; elements: how many are read and written for each of the result."""
    known = getattr(classic, op)
    moved = lambda n: elements * n  # noqa: E731
    return Workload(name, op, eager, vectors(inputs), moved, gradients_of, known)


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
