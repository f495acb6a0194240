"""An extension shares the statics of PyTorch's inline functions with PyTorch."""

import ctypes
import os
import re
import subprocess

import pytest

import jit_loader
from _jit_loader.build.pytorch.libraries import pytorchs_folder, share_statics
from tests.support.extension import binding


def unique_symbols(library):
    """Returns the symbols of statics that a library of PyTorch shares with all libraries."""
    path = os.path.join(pytorchs_folder(), library)
    said = subprocess.run(["nm", "-D", path], capture_output=True, text=True, check=True).stdout
    return re.findall(r" u (_ZZ\w+)$", said, re.MULTILINE)


LIBRARIES = ["libtorch_cpu.so", "libtorch_python.so", "libc10.so", "libc10_cuda.so"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_static_of_pytorch_is_shared(tiny, library):
    """One of libc10_cuda.so is the mode of torch.cuda.set_sync_debug_mode."""
    if not os.path.exists(os.path.join(pytorchs_folder(), library)):
        pytest.skip("needs a build of PyTorch with CUDA")
    symbol = unique_symbols(library)[0]
    variable = f"""\
extern "C" __attribute__((weak)) char variable __asm__("{symbol}");
char variable = 0;
"""
    source = tiny.write("module.cpp", binding("tiny", variable, value="(long)&variable"))
    opened = ctypes.CDLL(os.path.join(pytorchs_folder(), library))
    address = ctypes.addressof(ctypes.c_char.in_dll(opened, symbol))
    assert jit_loader.load("tiny", source).value() == address


@pytest.mark.parametrize("end", [0, 20, 1000, -100])
def test_file_that_is_no_complete_library_is_left_as_it_is(tiny, tmp_path, end):
    with open(tiny.load().__file__, "rb") as file:
        data = file.read()[:end] or b"not a library"
    path = tmp_path / "library.so"
    path.write_bytes(data)
    share_statics(path)
    assert path.read_bytes() == data
