"""Compiles kernels into libraries that ctypes loads; kernels are C++17."""

import ctypes
import os
import subprocess

import pytest
import torch

from tests.support.extension import ROOT


@pytest.fixture(scope="session")
def compiler():
    """Returns the start of a compiler's command line."""
    return [os.environ.get("CXX", "c++"), "-std=c++17", f"-I{ROOT}"]


@pytest.fixture(scope="session")
def library_of(compiler, tmp_path_factory):
    """Returns library_of("kernels/add2_cpu.cpp", ...), which compiles sources to a library."""

    def compile(*sources, flags=()):
        path = tmp_path_factory.mktemp("library") / "library.so"
        command = [*compiler, "-O3", *flags, "-shared", "-fPIC", *sources, "-o", path]
        subprocess.run(command, check=True, cwd=ROOT)
        return ctypes.CDLL(str(path))

    return compile


@pytest.fixture
def vectorisation(compiler):
    """Returns vectorisation(source, flag, ...), the report of g++ about loops."""
    version = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=True)
    if "Free Software Foundation" not in version.stdout:
        pytest.skip("needs the vectorisation report of g++")

    def compile(source, *flags):
        command = [*compiler, "-O3", *flags, "-fopt-info-vec", "-c", source, "-o", "/dev/null"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stderr

    return compile


def call(function, out, *inputs):
    """Calls a C function of arrays or tensors and of the first input's size; returns out."""
    pointers = [ctypes.c_void_p(torch.as_tensor(x).data_ptr()) for x in (out, *inputs)]
    function(*pointers, ctypes.c_int64(len(inputs[0])))
    return out
