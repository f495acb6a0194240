"""Kernels in cubins are compared: those of NVRTC with those of nvcc."""

import os
import subprocess

import pytest

from _jit_loader.cuda.nvrtc import Program, compile_program
from _jit_loader.key import toolchain
from _jit_loader.live.compare_cubins import compare, cubins_of, variables
from tests.support.nvrtc import needs_nvccs_version

pytestmark = [pytest.mark.nvcc, needs_nvccs_version]

SOURCE = """\
__constant__ float factors[2] = {1, 2};
__device__ int count = 5;
namespace n { static __device__ int hidden = 6; }
__device__ __noinline__ float quotient(float x, float y) { return x / y; }
template <class T> __global__ void scale(T* y, int n) { if (threadIdx.x < n) y[threadIdx.x] *= 3; }
template __global__ void scale(float*, int);
template __global__ void scale(double*, int);
extern "C" {
__global__ void constant(int* y) { *y = 42; }
__global__ void power(float* y) { *y = powf(*y, 3); }
__global__ void call(float* y) { *y = quotient(*y, factors[1]) + count; }
__global__ void __launch_bounds__(64) bounded(int* y) { *y = n::hidden++ + 2; }
__global__ void total(float* y) {
  __shared__ float parts[256];
  parts[threadIdx.x] = y[threadIdx.x] * 0.5f;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < 256; ++i) sum += parts[(i + threadIdx.x) % 256];
  y[threadIdx.x] = sum;
}
}
"""
OTHER = '__global__ void two(int* y) { *y = 1; }\nextern "C" void launch() { two<<<1, 1>>>(0); }'
EXPRESSIONS = "scale<float>", "scale<double>", "constant", "power", "call", "bounded", "total"
FLOAT, DOUBLE = "_Z5scaleIfEvPT_i", "_Z5scaleIdEvPT_i"
NAMES = FLOAT, DOUBLE, "constant", "power", "call", "bounded", "total"


def build(folder, name, text, *architectures):
    (folder / f"{name}.cu").write_text(text)
    flags = [f"-gencode=arch=compute_{number},code=sm_{number}" for number in architectures]
    path = folder / f"{name}.o"
    command = [toolchain.nvcc_path(), "-Xcompiler=-fPIC", "-c", folder / f"{name}.cu", "-o", path]
    subprocess.run([*command, *flags], check=True)
    return path


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """Returns the path of the object that nvcc makes of SOURCE; it takes 1.5 s."""
    return build(tmp_path_factory.mktemp("compare"), "source", SOURCE, 90)


@pytest.fixture(scope="session")
def differences(built):
    """Returns a function that compares nvcc's SOURCE with NVRTC's of a changed one.

    It returns {name: reason} of what differs.
    """
    (expected,) = cubins_of(built)

    def differences(old="", new="", kernels=EXPRESSIONS):
        assert old in SOURCE
        options = ["-arch=sm_90", "-default-device"]
        program = Program(SOURCE.replace(old, new, 1), "source.cu", options, {})
        cubin, _ = compile_program(program, [*kernels, "&count", "&factors", "&n::hidden"])
        found = compare(cubin, expected, NAMES)
        assert {*NAMES} <= found.keys()
        return {name: reason for name, reason in found.items() if reason is not None}

    return differences


def test_the_same_source_is_equal(differences):
    assert differences() == {}


@pytest.mark.parametrize(
    ("old", "new", "kernels"),
    [
        ("*= 3", "*= 4", {FLOAT, DOUBLE}),
        ("*= 3", "*= sizeof(T) == 8 ? 3 : 5", {FLOAT}),
        ("powf(*y, 3)", "pow(double(*y), 3.0)", {"power"}),
        ("powf(*y, 3)", "__powf(*y, 3)", {"power"}),
        ("x / y", "x * y", {"call"}),
        ("++ + 2", "++ + 3", {"bounded"}),
        ("++ + 2", "++ * 2", {"bounded"}),
        ("42", "43", {"constant"}),
        ("* 0.5f", "* 0.25f", {"total"}),
        ("sum = 0", "sum = 0.1f", {"total"}),
        ("sum +=", "sum -=", {"total"}),
        ("sum +=", "sum *=", {"total"}),
        ("sum +=", "sum = __fadd_ru(sum, 1) +", {"total"}),
    ],
)
def test_other_code_differs(differences, old, new, kernels):
    assert differences(old, new) == dict.fromkeys(kernels, "its operations differ")


BOUNDS = {"bounded": "its parameters or launch bounds differ"}


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("bounded(int* y)", "bounded(int* y, int)", BOUNDS),
        ("__launch_bounds__(64)", "__launch_bounds__(32)", BOUNDS),
        ("parts[256]", "parts[512]", {"total": "its bytes of shared memory differ"}),
        ("{1, 2}", "{1, 3}", {"factors": "it is another variable"}),
        ("factors[2]", "factors[3]", {"factors": "it is another variable"}),
        ("hidden = 6", "hidden = 7", {"_ZN1n6hiddenE": "it is another variable"}),
        ("__device__ int count", "__constant__ int count", {"count": "it is another variable"}),
    ],
)
def test_another_interface_differs(differences, old, new, found):
    assert differences(old, new).items() >= found.items()


@pytest.mark.parametrize(
    "own", ["", "static __constant__ int own;", "namespace cuda { __device__ int own; }"]
)
def test_constants_of_cudas_headers_are_no_variables_of_the_source(tmp_path, own):
    text = f"#include <cuda/std/utility>\n{own}\n" + "__global__ void k(float* y, int i) "
    (cubin,) = cubins_of(build(tmp_path, "own", text + "{ y[i] = sinf(y[i]); }", 90))
    assert b"in_place" in cubin
    assert variables(cubin) == ["own"] * bool(own)


def test_a_missing_kernel_differs(differences):
    missing = differences("template __global__ void scale(float*, int);", "", EXPRESSIONS[1:])
    assert missing == {FLOAT: "one of the two has no such kernel"}


def test_a_library_has_the_cubins_of_its_sources(built, tmp_path):
    other, library = build(tmp_path, "other", OTHER, 80, 90), tmp_path / "both.so"
    linker = [*toolchain.cxx_command(), "-shared", "-Wl,--unresolved-symbols=ignore-all"]
    subprocess.run([*linker, built, other, "-o", library], check=True)
    found, (first,) = cubins_of(library), cubins_of(built)
    others = [each for each in found if each != first]
    assert len(others) == 2
    assert first in found
    assert all(b"_Z3twoPi" in each for each in others)


def test_an_object_without_device_code_has_no_cubins():
    import _ctypes

    assert cubins_of(os.path.abspath(_ctypes.__file__)) == []
