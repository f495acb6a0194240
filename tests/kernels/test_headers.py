"""kernels/ is plain C++ and CUDA that can be copied into any code base unchanged."""

import glob
import os
import re
import subprocess

import pytest

from _jit_loader.key import toolchain
from tests.support.extension import ROOT

KERNELS = sorted(path for path in (ROOT / "kernels").rglob("*") if path.is_file())
FRAMEWORKS = ("torch/", "ATen/", "c10/", "caffe2/", "pybind11/", "Python.h", "bindings/")


def files(*endings):
    """Parametrizes a test with the files in kernels/ whose names have one of these endings."""
    found = [path for path in KERNELS if path.suffix in endings]
    return pytest.mark.parametrize("path", found, ids=lambda path: path.name)


@files(".h", ".cuh", ".cpp", ".cu")
def test_file_includes_no_framework_header(path):
    includes = re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)', path.read_text(), re.MULTILINE)
    assert not [name for name in includes if name.startswith(FRAMEWORKS)]


@files(".h")
def test_header_stands_alone_in_cpp17_without_warnings(path, compiler):
    command = [*compiler, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++", "-"]
    subprocess.run(command, input=f'#include "{path.relative_to(ROOT)}"\n', text=True, check=True)


@files(".cu")
@pytest.mark.slow
def test_kernel_compiles_with_nvcc_from_pip(path, tmp_path):
    """Whichever nvcc PATH has."""
    found = glob.glob(os.path.join(toolchain.pip_cuda_folder(), "cu*/bin/nvcc"))
    if not found:
        pytest.skip("nvcc is not installed from pip")
    command = [found[0], "-std=c++17", "-arch=sm_80", f"-I{ROOT}", "-c", path, "-o", tmp_path / "o"]
    subprocess.run(command, check=True)


def test_every_floating_type_of_an_elementwise_op_is_vectorised(vectorisation):
    report = vectorisation("kernels/add2_cpu.cpp")
    assert report.count("loop versioned for vectorization") >= 4, report
