"""Tests device code that NVRTC compiles from a .cu file, and its replacement in a library."""

import re
from pathlib import Path

import pytest

from _jit_loader.cuda import nvrtc
from _jit_loader.live.edit import NotLive
from _jit_loader.live.program import compile_kernels, device_program, nvrtc_options, version_of

pytestmark = pytest.mark.nvcc

HEADER = """\
#pragma once
#include <stdint.h>
struct Factor { template <class T> __host__ __device__ T operator()(T x) const { return 3 * x; } };
inline int blocks(int64_t n) { return cudaGetLastError() == cudaSuccess ? int(n / 32) : 0; }
"""
SOURCE = """\
#include "factor.h"
template <class T>
__global__ void scale(T* y, const T* x, int64_t n) {
  const int64_t i = threadIdx.x;
  if (i < n) y[i] = Factor()(x[i]);
}
template <class T>
void launch(T* y, const T* x, int64_t n, cudaStream_t stream) {
  scale<<<blocks(n), 32, 0, stream>>>(y, x, n);
}
template void launch(float*, const float*, int64_t, cudaStream_t);
"""
KERNEL = "_Z5scaleIfEvPT_PKS0_l"


def command(folder, *more):
    flags = f"-MD -MF a.d -I{folder} -std=c++17 -O3 --expt-relaxed-constexpr --compiler-options"
    flags = [*flags.split(), "-fPIC", "-gencode=arch=compute_80,code=sm_80", *more]
    return ["nvcc", *flags, "-c", f"{folder}/a.cu", "-o", "a.o"]


@pytest.fixture
def compiled(tmp_path):
    """Returns a function that compiles a source and its header with NVRTC."""
    if nvrtc.library_path() is None:
        pytest.skip("PyTorch's wheel has no NVRTC")

    def compiled(source=SOURCE, header=HEADER, kernels=(KERNEL,)):
        texts = {f"{tmp_path}/a.cu": source, f"{tmp_path}/factor.h": header}
        for path, text in texts.items():
            Path(path).write_text(text)
        program = device_program(f"{tmp_path}/a.cu", texts, command(tmp_path))
        return compile_kernels(program, kernels)

    return compiled


def test_a_source_with_host_code_compiles(compiled):
    code = compiled()
    assert KERNEL.encode() in code
    assert re.fullmatch(rb"release \d+\.\d+, V[\d.]+", version_of(code))
    assert compiled(header=HEADER.replace("3 * x", "4 * x")) != code


def test_a_kernel_cannot_call_a_host_function(compiled):
    """nvcc refuses such a call; NVRTC does not get the function."""
    with pytest.raises(nvrtc.NvrtcError, match='identifier "blocks" is undefined'):
        compiled(SOURCE.replace("if (i < n)", "if (i < blocks(n))"))


def test_an_error_names_the_line_of_a_header(compiled, tmp_path):
    header = HEADER.replace("int(n / 32) : 0; }", "0 : 0; }\n\n__device__ int f() { return z; }")
    with pytest.raises(nvrtc.NvrtcError) as caught:
        compiled(header=header)
    assert f'{tmp_path}/factor.h(6): error: identifier "z"' in str(caught.value)


@pytest.mark.parametrize(
    ("source", "header"),
    [
        (SOURCE, "#include <vector>\n" + HEADER),
        (SOURCE, "#include <cub/cub.cuh>\n" + HEADER),
        (SOURCE.replace("x[i])", "pow(x[i], 2))"), HEADER),
    ],
)
def test_code_that_nvrtc_cannot_compile_as_nvcc_does_is_refused(compiled, source, header):
    with pytest.raises((NotLive, nvrtc.NvrtcError)):
        compiled(source, header)


CONDITIONS = [
    ("#ifdef __NVCC__", ""),
    ("#ifndef __CUDACC_RTC__", ""),
    ("#if CUDART_VERSION > 12000", ""),
    ("#define NEW (CUDART_VERSION > 12000)\n#if NEW", ""),
    ("#if __CUDA_ARCH__ == 800", ""),
    ("#ifdef M_PI", "#include <math.h>"),
    ("#if 1  // doesn't matter", ""),
]


@pytest.mark.parametrize(("condition", "include"), CONDITIONS)
def test_conditions_have_the_values_that_nvcc_gives_them(compiled, condition, include):
    header = HEADER.replace("#pragma once", f"#pragma once\n{include}")
    text = f"{condition}\n#define FACTOR 5\n#else\n#define FACTOR 7\n#endif\n"
    five, other = (
        compiled(
            f'#include "factor.h"\n{more}{SOURCE}'.replace("y[i] =", f"y[i] = {factor} *"), header
        )
        for more, factor in ((text, "FACTOR"), ("\n" * text.count("\n"), "5"))
    )
    assert five == other


@pytest.mark.parametrize(
    "function",
    [
        "__device__ float f(float x);\nfloat f(float x) { return x; }\n",
        "struct A { __device__ float f(float x); };\nfloat A::f(float x) { return x; }\n"
        "__device__ float f(float x) { return A().f(x); }\n",
        "template <class T> __device__ T f(T x);\n"
        "template <> inline float f<float>(float x) { return x; }\n",
    ],
)
def test_a_body_without_device_may_be_device_code(compiled, function):
    assert compiled(SOURCE.replace("x[i])", "f(x[i]))"), HEADER + function)


def test_a_body_may_be_a_header(compiled):
    source = '__global__ void f(float* y) {\n#include "factor.h"\n}\n'
    assert compiled(source, "if (y) {\n  *y = 1;\n}\n", kernels=["_Z1fPf"])


@pytest.mark.parametrize("function", ["isnan", "isinf", "isfinite", "signbit"])
def test_predicates_are_bool(compiled, function):
    pick = "__device__ int pick(bool) { return 1; }\n__device__ int pick(int) { return 2; }\n"
    one, other = (
        compiled(pick + SOURCE.replace("Factor()(x[i])", f"pick({call})"))
        for call in (f"{function}(x[i])", f"bool({function}(x[i]))")
    )
    assert one == other


def test_a_guard_of_a_header_may_have_any_name(compiled):
    assert compiled(header=HEADER.replace("#pragma once", "#ifndef M_H\n#define M_H") + "#endif\n")


def test_a_kernel_of_internal_linkage_is_refused(compiled):
    """nvcc gives it a name that only nvcc knows."""
    with pytest.raises(NotLive, match="internal linkage"):
        compiled(kernels=[f"__nv_static_34__a1b2c3d4_4_a_cu_{KERNEL}"])


def test_flags_of_nvcc_become_options_of_nvrtc():
    flags = ["-DA=1", "-isystem", "/b", "-use_fast_math", "-lineinfo", "-ccbin", "g++"]
    options, folders, system = nvrtc_options(command("/a", *flags), "/a/a.cu")
    assert options == ["-arch=sm_80", "-std=c++17", "-DA=1", "-use_fast_math", "-lineinfo"]
    assert (folders, system) == (["/a"], ["/b"])


UNKNOWN = "-G -rdc=true -include=a.h -Xcompiler=-DA -Xptxas=-O1 -gencode=arch=compute_90,code=sm_90"


@pytest.mark.parametrize("flag", UNKNOWN.split())
def test_unknown_flags_are_refused(flag):
    with pytest.raises(NotLive):
        nvrtc_options(command("/a", flag), "/a/a.cu")
