"""Tests arguments, results and errors between Python and C++ in bindings/shared/module.h."""

import enum
import gc
import inspect
import os
import subprocess
import sysconfig
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.cpp_extension import include_paths

import jit_loader
from tests.support.extension import ROOT

FOLDER = Path(__file__).parent
X = torch.arange(3.0)


@pytest.fixture(scope="module")
def module():
    return jit_loader.load(
        "module_test",
        str(FOLDER / "functions.cpp"),
        extra_cflags=["-O1", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"],
        extra_include_paths=[str(ROOT)],
    )


@pytest.mark.slow
def test_declarations_are_those_of_pytorch():
    folders = [*include_paths(), sysconfig.get_paths()["include"]]
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-fsyntax-only", f"-I{ROOT}"]
    command += [f"-isystem{folder}" for folder in folders]
    subprocess.run([*command, FOLDER / "declarations.cpp"], check=True)


def test_tensors_keep_their_identity(module):
    class Subclass(torch.Tensor):
        pass

    for x in [X, torch.nn.Parameter(X), X.as_subclass(Subclass), X.to_sparse(), X.to("meta")]:
        assert module.same(x) is x
        assert module.same_by_value(x) is x


def test_tensors_are_released(module):
    class Subclass(torch.Tensor):
        pass

    x, y = torch.zeros(1).as_subclass(Subclass), torch.ones(1)
    gone = weakref.ref(x)
    module.swapped(x, y)
    module.value_or_undefined(x)
    for bad in [(x, 1), (1, x), (x, y, x)]:
        with pytest.raises(TypeError):
            module.swapped(*bad)
    del x, bad
    gc.collect()
    assert gone() is None


def test_results_may_be_none_or_a_tuple(module):
    assert module.undefined() is None
    assert module.value_or_undefined(X) is X
    assert module.value_or_undefined(None) is None
    y = torch.ones(2)
    result = module.swapped(X, second=y)
    assert type(result) is tuple
    assert result[0] is y
    assert result[1] is X


class Number(enum.IntEnum):
    ANSWER = 42


@pytest.mark.parametrize("value", [42, np.int8(42), np.uint64(42), Number.ANSWER, torch.tensor(42)])
def test_integers_of_every_type_are_accepted(module, value):
    assert module.expect_int(value, False) is None


def test_smallest_and_largest_integers_are_exact(module):
    module.expect_int(-(2**63), True)
    with pytest.raises(RuntimeError, match=r"it is 9223372036854775807"):
        module.expect_int(2**63 - 1, False)


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), torch.tensor(0.5)], ids=repr)
def test_floats_of_every_type_are_accepted(module, value):
    assert module.expect_half(value) is None
    with pytest.raises(RuntimeError, match="it is -1"):
        module.expect_half(-1)


BAD_ARGUMENTS = {
    "list as tensor": (lambda m: m.same([X]), r"same\(\): argument 'x' must be Tensor, not list"),
    "none as tensor": (lambda m: m.same(None), r"same\(\): argument 'x' must be Tensor, not None"),
    "by keyword": (lambda m: m.same(x=1), r"same\(\): argument 'x' must be Tensor, not int"),
    "second": (lambda m: m.swapped(X, {}), r"swapped\(\): argument 'second' must be .* not dict"),
    "optional": (lambda m: m.value_or_undefined(1), r"value_or_undefined\(\): .*'x' .*not int"),
    "other name": (lambda m: m.another_name(1), r"another_name\(\): argument 'y' must be Tensor"),
    "float as int": (lambda m: m.expect_int(1.0, True), r"expect_int\(\): .*'value' must be int"),
    "tensor as int": (lambda m: m.expect_int(X, True), r"'value' must be int, not Tensor"),
    "above": (lambda m: m.expect_int(2**63, True), r"expect_int\(\): .*'value' .*64 bits"),
    "below": (lambda m: m.expect_int(-(2**63) - 1, True), r"expect_int\(\): .*'value' .*64 bits"),
    "int as bool": (lambda m: m.expect_int(1, 1), r"expect_int\(\): .*'is_lowest' .*bool, not int"),
    "text as float": (lambda m: m.expect_half("1"), r"expect_half\(\): .*'value' .*float, not str"),
    "none at all": (lambda m: m.swapped(), r"swapped\(\) is missing argument 'first'"),
    "too few": (lambda m: m.swapped(X), r"swapped\(\) is missing argument 'second'"),
    "too few by name": (lambda m: m.swapped(second=X), r"swapped\(\) is missing argument 'first'"),
    "too many": (lambda m: m.swapped(X, X, X), r"swapped\(\) takes 2 arguments, but 3"),
    "none wanted": (lambda m: m.undefined(X), r"undefined\(\) takes 0 arguments, but 1"),
    "unknown": (lambda m: m.swapped(X, thrid=X), r"swapped\(\) has no argument 'thrid'"),
    "twice": (lambda m: m.swapped(X, X, first=X), r"swapped\(\) got two values .*'first'"),
    "not ascii": (lambda m: m.swapped(X, **{"ß": X}), r"swapped\(\) has no argument 'ß'"),
}


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_bad_arguments_are_type_errors(module, case):
    call, message = BAD_ARGUMENTS[case]
    with pytest.raises(TypeError, match=message):
        call(module)


def test_object_that_pretends_to_be_a_tensor_is_refused(module):
    class Pretender:
        __class__ = torch.Tensor

    assert isinstance(Pretender(), torch.Tensor)
    with pytest.raises(TypeError, match=r"must be Tensor, not Pretender"):
        module.same(Pretender())


def test_exception_of_an_argument_is_kept(module):
    class Interrupts:
        def __index__(self):
            raise KeyboardInterrupt

        __float__ = __index__

    for call in [lambda x: module.expect_int(x, True), module.expect_half]:
        with pytest.raises(KeyboardInterrupt):
            call(Interrupts())


EXCEPTIONS = [
    *(RuntimeError, ValueError, TypeError, IndexError, NotImplementedError),
    *(RuntimeError, ValueError, IndexError, MemoryError, RuntimeError),
]


@pytest.mark.parametrize("which", range(len(EXCEPTIONS)))
def test_cpp_exceptions_become_python_exceptions(module, which):
    with pytest.raises(EXCEPTIONS[which]) as caught:
        module.raise_(which)
    assert type(caught.value) is EXCEPTIONS[which]
    if which < 8:
        assert str(caught.value) == f"number {which}"


def test_gil_is_released_during_a_call(module):
    module.expect_gil(False)
    with pytest.raises(RuntimeError):
        module.expect_gil(True)


def test_help_shows_docstrings_and_signatures(module):
    assert module.__doc__ == "What the module is for."
    assert module.same.__doc__ == "What it does."
    assert module.same.__name__ == "same"
    assert module.same.__module__.endswith(module.__name__)
    assert str(inspect.signature(module.swapped)) == "(first, second)"
    assert str(inspect.signature(module.undefined)) == "()"
    assert str(inspect.signature(module.another_name)) == "(y)"


def test_a_refused_launch_names_the_op_and_the_launcher(module):
    with pytest.raises(RuntimeError) as raised:
        module.raise_launch_error(False)
    assert str(raised.value) == (
        "op(): CUDA could not launch the kernel of void launcher(): cudaErrorName: what it means"
    )


@pytest.mark.parametrize("blocking", [None, "0", "1"])
def test_a_kernels_fault_says_how_to_find_it_and_that_python_has_to_restart(
    module, monkeypatch, blocking
):
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING", raising=False)
    if blocking is not None:
        monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", blocking)
    with pytest.raises(RuntimeError) as raised:
        module.raise_launch_error(True)
    first, *advice = str(raised.value).splitlines()
    assert first == (
        "op(): a kernel has failed, detected at the launch of void launcher(): cudaErrorName: "
        "what it means"
    )
    assert any("CUDA_LAUNCH_BLOCKING=1" in line for line in advice) == (blocking != "1")
    assert advice[-2].strip() == "to find the line at fault: python -m jit_loader check <script>"
    assert "restart Python" in advice[-1]
