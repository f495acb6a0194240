"""Describes each op to the tests that run for all ops; cases/ has their Cases."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

FLOATING = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
ONE_DTYPE = [
    torch.float32,
    *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in FLOATING if dtype != torch.float32),
]


@dataclass(frozen=True)
class Case:
    """An op, with the properties that the tests for all ops need.

    reference: a function that computes the result (or tuple of results) with numpy, from the
        arguments as float64 arrays.
    error: a function that bounds the error of each result before the result is rounded to its
        dtype, from the dtype and the arguments as float64 arrays. It returns an array (or tuple)
        that broadcasts to the result's shape. The bounds are multiples of unit(dtype).
    shapes: tuples with a shape for each argument: small, odd and empty ones.
    any_shapes: a hypothesis strategy for such a tuple.
    large: such a tuple, with more elements than one thread of the CPU processes.
    draw: a function that makes an argument: draw(position, shape, dtype, device).
    gradient_units: the error that a gradient may have besides its rounding to the dtype, in
        multiples of unit(dtype) and of the largest gradient.
    saved_rounding: the same in units of the dtype, for a backward that reads a rounded result.
    broadcasts: whether the arguments are broadcast to one shape.
    bad_calls: {name: (arguments, exception, words of its message)}, besides arguments of another
        type, dtype or layout.
    promotes: whether two arguments may have different dtypes.
    module: the op as an nn.Module without arguments, if there is one.
    vmap_dims: in_dims for vmap. Arguments of `shapes[vmap_of]` get another dimension of size 3.
    """

    op: Callable
    reference: Callable
    error: Callable
    shapes: list
    any_shapes: st.SearchStrategy
    large: tuple
    bad_calls: dict = field(default_factory=dict)
    draw: Callable = lambda _position, shape, dtype, device: torch.randn(
        shape, dtype=torch.float64
    ).to(device, dtype)
    gradient_units: float = 8.0
    saved_rounding: float = 0.0
    broadcasts: bool = False
    promotes: bool = False
    module: Callable | None = None
    vmap_dims: list = field(default_factory=list)
    vmap_of: int = 0

    @property
    def name(self):
        return self.op.__name__

    @property
    def registered(self):
        return getattr(torch.ops.jit_loader, self.name).default

    def total(self, *arguments):
        """Returns the sum of the squares of the results: a scalar with a second derivative."""
        return sum(y.square().sum() for y in as_tuple(self.op(*arguments)))

    def leaves(self, device="cpu", dtype=torch.float64):
        """Returns small arguments that need gradients."""
        return self.arguments(self.shapes[-1], dtype, device, requires_grad=True)

    def gradients(self, arguments):
        """Returns the gradients of total with respect to the arguments."""
        leaves = [x.detach().requires_grad_() for x in arguments]
        return torch.autograd.grad(self.total(*leaves), leaves)

    def arguments(self, shapes, dtype, device="cpu", requires_grad=False):
        return tuple(
            self.draw(position, shape, dtype, device).requires_grad_(requires_grad)
            for position, shape in enumerate(shapes)
        )


def unit(dtype):
    """Returns the machine epsilon of the type in which ops compute a dtype."""
    return torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps


def as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


def as_float64(x):
    return x.detach().double().cpu().numpy()


def assert_is_right(case, results, arguments):
    """Checks the dtype, device, shape and value of results against the numpy reference."""
    arrays = [as_float64(x) for x in arguments]
    dtype = arguments[0].dtype
    expected = as_tuple(case.reference(*arrays))
    errors = as_tuple(case.error(dtype, *arrays))
    results = as_tuple(results)
    assert len(results) == len(expected)
    information = torch.finfo(dtype)
    for result, wanted, error in zip(results, expected, errors):
        assert result.dtype == dtype
        assert result.device == arguments[0].device
        assert tuple(result.shape) == np.shape(wanted)
        assert result.is_contiguous()
        rounding = 0.5001 * information.eps * np.abs(wanted) + information.smallest_normal
        np.testing.assert_array_less(np.abs(as_float64(result) - wanted), error + rounding)


def load_cases():
    """Returns the Cases of every file in cases/."""
    cases = []
    for path in sorted((Path(__file__).parent / "cases").glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"tests.bindings.cases.{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        cases += getattr(module, "CASES", None) or [module.CASE]
    return cases


CASES = load_cases()
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
# A graph compiler treats every op alike, as a node. By default, such compilers are tested with
# one op that has one result and one op that has two.
CASES_AS_NODES = [
    pytest.param(
        case, id=case.name, marks=() if case.name in ("add2", "lltm") else pytest.mark.slow
    )
    for case in CASES
]
