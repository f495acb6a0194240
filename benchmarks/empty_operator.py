"""Operators of C++ without work, to compare with ours."""

from pathlib import Path

import torch

import jit_loader


def empty_operator(name, inputs, result):
    """Returns a function that calls an operator of C++, which makes a result without values.

    The result is like the given one, and the gradients are like the inputs. Without a gradient, a
    compiled graph calls no operator in less time. name: unique in the process.
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
