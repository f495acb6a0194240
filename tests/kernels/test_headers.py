"""kernels/ is plain C++ and CUDA that can be copied into any code base unchanged."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KERNELS = sorted(path for path in (ROOT / "kernels").rglob("*") if path.is_file())
FRAMEWORKS = ("torch/", "ATen/", "c10/", "caffe2/", "pybind11/", "Python.h", "bindings/")


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.name)
def test_file_includes_no_framework_header(path):
    includes = re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)', path.read_text(), re.MULTILINE)
    assert not [name for name in includes if name.startswith(FRAMEWORKS)]


@pytest.mark.parametrize(
    "path", [path for path in KERNELS if path.suffix == ".h"], ids=lambda path: path.name
)
def test_header_stands_alone_in_cpp17_without_warnings(path, compiler):
    command = [*compiler, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++", "-"]
    source = f'#include "{path.relative_to(ROOT)}"\n'
    subprocess.run(command, input=source, text=True, check=True)


def test_every_floating_type_of_an_elementwise_op_is_vectorised(compiler):
    version = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=True)
    if "Free Software Foundation" not in version.stdout:
        pytest.skip("needs the vectorisation report of g++")
    report = subprocess.run(
        [*compiler, "-O3", "-fopt-info-vec", "-c", "kernels/add2_cpu.cpp", "-o", "/dev/null"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    assert report.count("loop versioned for vectorization") >= 4, report
