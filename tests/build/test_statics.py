"""An extension shares the statics of PyTorch's inline functions with PyTorch."""

import ctypes
import os
import re
import subprocess

import pytest
import torch

import jit_loader
from _jit_loader.build.pytorch.libraries import pytorchs_folder, share_statics
from tests.support.extension import PYTHON, binding


def unique_symbols(library):
    """Returns the symbols of statics that a library of PyTorch shares with all libraries."""
    path = os.path.join(pytorchs_folder(), library)
    said = subprocess.run(["nm", "-D", path], capture_output=True, text=True, check=True).stdout
    return re.findall(r" u (_ZZ\w+)$", said, re.MULTILINE)


@pytest.mark.parametrize("library", ["libtorch_cpu.so", "libtorch_python.so", "libc10.so"])
def test_static_of_pytorch_is_shared(tiny, library):
    symbol = unique_symbols(library)[0]
    variable = f"""\
extern "C" __attribute__((weak)) char variable __asm__("{symbol}");
char variable = 0;
"""
    source = tiny.write("module.cpp", binding("tiny", variable, value="(long)&variable"))
    opened = ctypes.CDLL(os.path.join(pytorchs_folder(), library))
    address = ctypes.addressof(ctypes.c_char.in_dll(opened, symbol))
    assert jit_loader.load("tiny", source).value() == address


@pytest.mark.slow
@pytest.mark.nvcc
def test_extension_sees_the_mode_of_set_sync_debug_mode(tiny):
    mode = "(long)c10::cuda::warning_state().get_sync_debug_mode()"
    headers = "#include <Python.h>\n#include <c10/cuda/CUDAFunctions.h>\n"
    text = binding("mode", value=mode).replace(PYTHON, headers)
    module = jit_loader.load("mode", tiny.write("mode.cpp", text), with_cuda=True)
    before = module.value()
    torch._C._cuda_set_sync_debug_mode(2)
    try:
        assert (before, module.value()) == (0, 2)
    finally:
        torch._C._cuda_set_sync_debug_mode(0)


@pytest.mark.parametrize("end", [0, 20, 1000, -100])
def test_file_that_is_no_complete_library_is_left_as_it_is(tiny, tmp_path, end):
    with open(tiny.load().__file__, "rb") as file:
        data = file.read()[:end] or b"not a library"
    path = tmp_path / "library.so"
    path.write_bytes(data)
    share_statics(path)
    assert path.read_bytes() == data
