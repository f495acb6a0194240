"""Other operators, to compare with ours: add2 with other gradients, and operators without work."""

from pathlib import Path

import torch

import jit_loader

_forward = jit_loader.load_op("add2").forward


class Add2(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        return _forward(a, b)

    @staticmethod
    def backward(ctx, grad):
        return grad, grad


@torch.library.custom_op("jit_loader_benchmarks::add2", mutates_args=())
def add2(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _forward(a, b)


@add2.register_fake
def _(a, b):
    return torch.empty_like(a)


add2.register_autograd(lambda ctx, grad: (grad, grad))


def empty_operator(name, inputs, result):
    """Returns a function that calls an operator of C++, which makes a result without values.

    The result is like the given one, and the gradients are like the inputs. A compiled graph calls
    no operator in less time. name: unique in the process.
    """
    operator = _define_empty(name, inputs, [result])
    gradient = _define_empty(f"{name}_backward", [result], inputs)

    # register_autograd would have each call pass through a kernel in Python.
    class Empty(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y=None):  # Dynamo does not know forward(ctx, *arguments)
            return operator(x) if y is None else operator(x, y)

        @staticmethod
        def backward(ctx, grad):
            return gradient(grad)

    return lambda *arguments: Empty.apply(*arguments)


def _define_empty(name, arguments, results):
    source = Path(__file__).parent / "sources" / "empty.cpp"
    library = jit_loader.load("jit_loader_benchmarks_empty", [str(source)])
    types = ", ".join(f"Tensor x{index}" for index, _ in enumerate(arguments))
    returns = ", ".join(["Tensor"] * len(results))
    library.define(name, f"({types}) -> ({returns})", [list(x.shape) for x in results])
    operator = getattr(torch.ops.jit_loader_benchmarks, name)

    @torch.library.register_fake(operator.default)
    def _(x, *_):
        made = tuple(x.new_empty(result.shape) for result in results)
        return made if len(made) > 1 else made[0]

    return operator.default
