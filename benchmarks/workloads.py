"""What the benchmarks call: each op in each direction, ours and PyTorch's own words for it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from bindings.add2 import add2
from bindings.my_op import my_op
from bindings.sigmoid import sigmoid
from bindings.sum_single import sum_single
from bindings.two_norm import two_norm


@dataclass(frozen=True)
class Workload:
    """An op in one direction.

    shapes(n): the arguments' shapes. elements(n): how many elements are read and written, each
    input once and each output once. gradients_of: the positions of the arguments whose gradients
    are computed; where there are none, the op itself is called without a gradient.
    """

    name: str
    ours: Callable
    eager: Callable
    shapes: Callable
    elements: Callable
    gradients_of: tuple = ()

    @property
    def op(self):
        return self.ours.__name__

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


def vectors(count):
    return lambda n: [(n,)] * count


def _my_op(x, y):
    return 3 * x - y


def _two_norm(a, b):
    return torch.linalg.vector_norm(a - b)


WORKLOADS = [
    Workload("add2", add2, torch.add, vectors(2), lambda n: 3 * n),
    Workload("my_op", my_op, _my_op, vectors(2), lambda n: 3 * n),
    Workload("my_op backward", my_op, _my_op, vectors(2), lambda n: 3 * n, (0, 1)),
    Workload("sigmoid", sigmoid, torch.sigmoid, vectors(1), lambda n: 2 * n),
    Workload("sigmoid backward", sigmoid, torch.sigmoid, vectors(1), lambda n: 3 * n, (0,)),
    Workload("sum_single", sum_single, torch.sum, vectors(1), lambda n: n),
    Workload("two_norm", two_norm, _two_norm, vectors(2), lambda n: 2 * n),
    Workload("two_norm backward", two_norm, _two_norm, vectors(2), lambda n: 4 * n, (0, 1)),
]
