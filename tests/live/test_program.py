"""Tests device code that NVRTC compiles from a .cu file, and its replacement in a library."""

import ctypes
import os
import re
import sysconfig
from pathlib import Path

import pytest

from _jit_loader.cuda import nvrtc
from _jit_loader.cuda.device_code import DeviceText
from _jit_loader.cuda.preprocess import NotUnderstood
from _jit_loader.key.machine import Machine
from _jit_loader.live.compare_cubins import version_of
from _jit_loader.live.edit import Inputs, NotLive
from _jit_loader.live.program import (
    _compile,
    _text,
    compile_device,
    keep_headers,
    nvrtc_options,
    precompile,
    program_of,
)
from tests.support.extension import program
from tests.support.nvrtc import needs_nvrtc

pytestmark = [pytest.mark.nvcc, needs_nvrtc]

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

    def compiled(source=SOURCE, header=HEADER, kernels=(KERNEL,), flags=()):
        texts = {f"{tmp_path}/a.cu": source, f"{tmp_path}/factor.h": header}
        for path, text in texts.items():
            Path(path).write_text(text)
        inputs = Inputs(f"{tmp_path}/a.cu", texts, command(tmp_path, *flags), kernels)
        return compile_device(inputs, kernels)[0]

    return compiled


def test_a_source_with_host_code_compiles(compiled):
    code = compiled()
    assert KERNEL.encode() in code
    assert re.fullmatch(r"\d+\.\d+\.\d+", version_of(code))
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


GPUS = "_jit_loader.live.program.this_machine"
INCLUDES = "#include <endian.h>\n#include <math.h>\n#include <cuda_runtime.h>\n"
CONDITIONS = """\
#ifdef __NVCC__
#ifndef __CUDACC_RTC__
#if CUDART_VERSION > 12000
#if NEW
#if __CUDA_ARCH__ == 800 || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#ifdef M_PI
#if 1  // doesn't matter
#if BYTE_ORDER == LITTLE_ENDIAN
#if __has_include(<cuda_runtime.h>)
"""


@pytest.mark.parametrize("flag", ["-std=c++17", "-arch=sm_90a"])  # nvcc then has three passes
def test_conditions_have_the_values_that_nvcc_gives_them(compiled, monkeypatch, flag):
    monkeypatch.setattr(GPUS, lambda: Machine("", ["9.0"]))
    lines = CONDITIONS.splitlines()
    texts = [f"{line}\n#else\n#error condition {i}\n#endif\n" for i, line in enumerate(lines)]
    new = "#define NEW (CUDART_VERSION > 12000)\n"
    # The host code, for which __CUDA_ARCH__ is not defined, is not compiled here.
    text = f'#include "factor.h"\n{new}{"".join(texts)}{SOURCE}'
    assert compiled(text, INCLUDES + HEADER, flags=[flag])


CHOICE = "#if {}\n#define N 1\n#else\n#define N 2\n#endif\n"


@pytest.mark.parametrize(
    ("includes", "more"),
    [
        ("", CHOICE.format("__has_include(<cuda_fp16.h>)")),
        ("#include <cuda/std/cstdint>\n", CHOICE.format("_CCCL_HAS_INCLUDE(<cuda_fp16.h>)")),
        ("#define NDEBUG\n#include <cassert>\n", "#undef NDEBUG\n#include <cassert>\n#define N 1"),
    ],
)
def test_a_condition_that_the_kept_headers_do_not_decide_is_not_understood(
    compiled, includes, more
):
    source = SOURCE.replace("template", "@template", 1)
    source = source.replace("if (i < n)", "assert(n); if (i < N)")
    assert compiled(source.replace("@", "#define N 1\n"), includes + HEADER)
    with pytest.raises(NotUnderstood, match="depends on the order of headers"):
        compiled(source.replace("@", f"{more}\n"), includes + HEADER)


def test_includes_precede_line_numbers(tmp_path):
    """NVRTC keeps nothing of the headers otherwise."""
    text = "#include <cub/cub.cuh>\n\n#include <cooperative_groups.h>\n__global__ void k() {}\n"
    (tmp_path / "a.cu").write_text(text)
    path = f"{tmp_path}/a.cu"
    _, code = program_of(Inputs(path, {path: text}, command(tmp_path), ()), [])
    assert _text(code, []).startswith(f'{text[:23]}{text[24:56]}#line 4 "{path}"\n__global__')


def test_a_wrapper_of_the_compiler_may_add_folders_of_headers(compiled, tmp_path):
    (tmp_path / "more.h").write_text("#define MORE 1\n")
    wrapper = program(tmp_path / "g++", f'#!/bin/sh\nexec g++ -isystem {tmp_path} "$@"\n')
    text = f"#include <more.h>\n#if !MORE\n#error\n#endif\n{SOURCE}"
    assert compiled(text, flags=["-ccbin", str(wrapper)])


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


def test_a_kernel_of_internal_linkage_is_refused(compiled):
    """nvcc gives it a name that only nvcc knows."""
    with pytest.raises(NotLive, match="internal linkage"):
        compiled(kernels=[f"__nv_static_34__a1b2c3d4_4_a_cu_{KERNEL}"])
    with pytest.raises(NotLive, match="none is known"):
        compiled(kernels=[])


def test_kernels_of_anonymous_namespaces_have_the_names_that_nvcc_gives_them(compiled):
    text = "namespace {{ __device__ float g() {{ return 1; }}\n{} }}\n"
    text += "namespace b {{ namespace {{ __global__ void h(float* x) {{ *x = g(); }} }} }}\n"
    place = "35_GLOBAL__N__8253855f_5_an_cu__Z1fPf"
    names = [f"_ZN{place}5scaleIfEEvPT_PKS1_l", f"_ZN1b{place}1hEPf"]
    code = compiled('#include "factor.h"\n' + text.format(SOURCE.partition("\n")[2]), kernels=names)
    assert all(name.encode() in code for name in names)


@pytest.mark.parametrize(
    ("text", "has_state"),
    [
        ("template <class T> __device__ T x = 0;", True),
        ("__device__ int* f() { static int x; return &x; }", True),
        ("__host__ __device__ int f() { static const int* x; return *x; }", True),
        ("struct A { mutable int m; }; __device__ void f() { static constexpr A a; }", True),
        ("template <class T> static __device__ T f(T x); int g() { static int x; }", False),
        ("__device__ void f() { static const int x = 2 * 3; static __shared__ int y; }", False),
    ],
)
def test_variables_that_the_first_use_of_a_function_or_template_adds(text, has_state):
    """Kernels are compiled one by one, so that each would have such a variable of its own."""
    assert DeviceText(text).may_have_state() == has_state


def with_header(value):
    text = "".join(f"struct A{i} {{ int x; }};\n" for i in range(2000))
    source = '#include <a.h>\nextern "C" __global__ void f(int* x) { *x = N; }'
    headers = {"a.h": f"{text}#define N {value}\n"}
    return keep_headers(nvrtc.Program(source, "a.cu", ["-arch=sm_80"], headers))


def test_headers_that_nvrtc_keeps_are_those_of_the_program():
    one, two = (nvrtc.compile_program(with_header(value), ["f"]) for value in (1, 2))
    assert one != two


def check_forks():
    """What --pch keeps is deleted when a fork ends."""
    programs = [with_header(value) for value in (3, 4)]
    expected = nvrtc.compile_program(programs[0], ["f"])
    precompile(programs[0])
    # NVRTC does not compare the texts of headers.
    same = with_header(3)._replace(headers=programs[1].headers)
    for _ in range(2):
        if (child := os.fork()) == 0:
            ctypes.CDLL(None).exit(nvrtc.compile_program(same, ["f"]) != expected)
        assert os.waitpid(child, 0)[1] == 0
    assert with_header(4) == programs[1]


def test_forks_use_precompiled_headers(python):
    """In a new process: the fork of one that has used a GPU may never end."""
    python("-c", f"from {__name__} import check_forks; check_forks()", check=True)


FLAGS = "-DA=1 -isystem /b -include a.h -res-usage -maxrregcount 60 -Xptxas -O3 -ccbin g++ -t 4 -w "
FLAGS += "-Xcompiler -fopenmp,-w -Xcudafe --diag_suppress=20012 -diag-suppress 177 -std c++20 "
FLAGS += "-ftz true --diag-suppress=177 --std=c++20 --generate-line-info --use_fast_math -restrict "
FLAGS += "-Xcompiler -fno-strict-aliasing,-w -Xptxas -dlcm=cg"
OPTIONS = "-std=c++17 -DA=1 -maxrregcount=60 -std=c++20 -ftz=true --std=c++20 --generate-line-info "
OPTIONS += "--use_fast_math -restrict -Xptxas=-dlcm=cg"


def test_flags_of_nvcc_become_options_of_nvrtc():
    options, included = nvrtc_options(command("/a", *FLAGS.split()), "/a/a.cu")
    assert options == ["-arch=sm_80", *OPTIONS.split()]
    assert included == ["a.h"]


UNKNOWN = "-G -rdc=true -Xcompiler=-DA -Xptxas=-O1,-v -Xfatbin=-compress-all -arch=native"
PARTLY = "-gencode=arch=compute_80,code=sm_90 -Xcudafe=--diag_suppress=1,--x -Xcompiler=-w,-DA"


@pytest.mark.parametrize("flag", [*UNKNOWN.split(), *PARTLY.split()])
def test_unknown_flags_are_refused(flag):
    with pytest.raises(NotLive, match="NVRTC has no equivalent of"):
        nvrtc_options(command("/a", flag), "/a/a.cu")


@pytest.mark.parametrize(
    ("flags", "gpus", "chosen"),
    [
        ("-gencode=arch=compute_80,code=sm_80", ["8.6"], "80"),
        ("-gencode arch=compute_90a,code=[sm_90a,compute_90a]", ["9.0"], "90a"),
        ("--gpu-architecture=sm_90", ["9.0"], "90"),
        ("-arch sm_90", ["8.0"], "80"),
        ("-arch=sm_90", ["8.6"], None),
        ("-arch=sm_90 --generate-code=arch=compute_90a,code=sm_90a", ["9.0"], None),
        ("-arch=sm_90", ["8.0", "9.0"], None),
        ("-gencode=arch=compute_80,code=compute_80", ["9.0"], None),  # the driver compiles the PTX
        ("-gencode=arch=compute_90,code=sm_90", [], None),
    ],
)
def test_the_architecture_is_that_of_the_gpus(monkeypatch, flags, gpus, chosen):
    monkeypatch.setattr(GPUS, lambda: Machine("", gpus))
    words = command("/a", *flags.split())
    if chosen:
        assert nvrtc_options(words, "/a/a.cu")[0][0] == f"-arch=sm_{chosen}"
    else:
        with pytest.raises(NotLive, match="not exactly one architecture of the build is that of"):
            nvrtc_options(words, "/a/a.cu")


# Host code, which NVRTC must not see.
NOT_OF_DEVICE = {
    "a function of the host": "#include <vector>\nstd::vector<int> g(int n) { return {n}; }",
    "a class of the host": "#include <string>\nstruct G { std::string s; };\nG g(G x) { throw; }",
    "a member of the host": (
        "#include <vector>\nstruct G { std::vector<int> f() { return {a}; } "
        "__device__ int g() { return a; } int a; };"
    ),
    "an alias of the host": "#include <map>\nusing G = std::map<int, int>;\nG* g();",
    "a lambda of the host": "auto g = [](int x) { return x + 1; };",
    "variables of the host": "#include <string>\nstd::string g = \"a\", h(3, 'b');\nint i{5};",
    "an assembler's text": '__device__ void g() { asm volatile("membar.gl;" ::: "memory"); }',
    "text that is left out": "#if 0\nit doesn't matter { fma(\n#endif\n/* fma(1, 2, 3) { */",
    "a macro": "#define CHECK(x) do if (!(x)) throw 1; while (0)\nvoid g() { CHECK(0); }",
    "an operator of the host": (
        "#include <iostream>\nstd::ostream& operator<<(std::ostream& to, int3 x) { return to; }"
    ),
    "an initializer": "static int g[] = {1, 2, 3};\nstruct H { int x, y; } h = {1, 2};",
    "an explicit instantiation": "template <class T> T g(T x) { return x; }\ntemplate int g(int);",
    "a try": "int g() try { return 1; } catch (...) { return 2; }",
    "a trailing type": "auto g(int x) -> decltype(x + 1) { return x; }",
    "a constructor": "struct G { int a, b; G(int x) : a{x}, b(x) { a = 1; } };\nG g(3);",
}


@pytest.mark.parametrize("text", NOT_OF_DEVICE.values(), ids=NOT_OF_DEVICE)
def test_what_only_the_host_uses_is_left_out(compiled, text):
    assert compiled(SOURCE.replace("template", f"{text}\ntemplate", 1))


# {an expression: the type that nvcc gives it}
OVERLOADS = {
    "pow(z, 2)": "double",
    "pow(z, z)": "float",
    "std::pow(z, 2)": "double",
    "std::fmod(z, 2)": "double",
    "fmin(z, 2.0)": "double",
    "lerp(z, z, z)": "float",
    "lerp(z, 2, z)": "double",
    "pow(true, z)": "double",
    "fma(2, z, z)": "double",
    "fmax('a', 1ll)": "double",
    "isnan(2)": "bool",
    "std::max(z, 2.0f)": "const float&",
    "isnan(z)": "bool",
    "isinf(z)": "bool",
    "isfinite(z)": "bool",
    "std::isnan(z)": "bool",
    "signbit(z)": "bool",
    "std::abs(-n)": "int64_t",
    "std::sqrt(2)": "double",
    "std::numeric_limits<float>::infinity()": "float",
    "NAN": "float",
}


# The device code without std, which NVRTC compiles without the headers of the C++ library.
WITHOUT_STD = {call: kind for call, kind in OVERLOADS.items() if "std" not in call}


@pytest.mark.parametrize("overloads", [OVERLOADS, WITHOUT_STD], ids=["all", "without std"])
def test_expressions_have_the_types_that_nvcc_gives_them(compiled, overloads):
    headers = "#include <algorithm>\n#include <cmath>\n#include <limits>\n"
    headers += "template <class, class> constexpr bool same = false;\n"
    headers += "template <class T> constexpr bool same<T, T> = true;\n"
    checks = "".join(
        f"static_assert(same<decltype({expression}), {kind}>); y[i] += {expression};\n"
        for expression, kind in overloads.items()
    )
    source = SOURCE.replace("if (i < n)", f"float z = 3; {checks} if (i < n)")
    assert compiled(source, headers + HEADER, flags=["-std=c++20"])


def test_a_class_that_is_left_out_does_not_uncover_another(compiled):
    """Else the kernel would use A of the outer namespace, and nvcc the inner one."""
    text = "struct A { int x = 3; };\nnamespace b {\nstruct A { std::string s; int x = 5; };\n"
    text += "__device__ int f() { return sizeof(A); }\n}\n"
    with pytest.raises(nvrtc.NvrtcError, match="incomplete type"):
        compiled(SOURCE.replace("template", f"#include <string>\n{text}\ntemplate", 1))


def test_removals_can_be_stored(tmp_path):
    source = f"{tmp_path}/a.cu"
    text = "#include <string>\nstruct A { std::string s; };\n"
    text += "__global__ void f(float* x) { *x = 1; }\n"
    inputs = Inputs(source, {source: text}, command(tmp_path), ["_Z1fPf"])
    first, removed = compile_device(inputs, inputs.kernels)
    assert removed
    assert _compile(*program_of(inputs, removed), inputs.kernels, removed) == (first, removed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("include", "statement"),
    [
        ("cooperative_groups.h", "cooperative_groups::this_thread_block().sync();"),
        (
            "cub/cub.cuh",
            "using R = cub::WarpReduce<T>; __shared__ typename R::TempStorage s; R(s).Sum(y[i]);",
        ),
        ("algorithm", "y[0] = [](std::initializer_list<int> l) { return std::max(l); }({1, 2});"),
        ("cmath", "y[i] = tex1D<T>(cudaTextureObject_t(), i);"),
        ("cuda/std/array", "cuda::std::array<float, 2> a{}; y[0] = a[1];"),
        ("thrust/iterator/reverse_iterator.h", "*thrust::reverse_iterator<T*>(y + n) = x[i];"),
        ("cuda_bf16.h", "y[0] = __bfloat162float(__float2bfloat16(x[0]));"),
    ],
)  # fmt: skip
def test_headers_of_cuda(compiled, include, statement):
    source = SOURCE.replace("if (i < n)", f"{statement} if (i < n)")
    assert compiled(source, f"#include <{include}>\n{HEADER}")


@pytest.mark.slow
def test_headers_of_pytorch(tmp_path):
    from torch.utils import cpp_extension

    source = f"{tmp_path}/a.cu"
    text = """\
#include <torch/extension.h>
#include <ATen/cuda/Atomic.cuh>
#include <vector>
template <class T>
__global__ void f(torch::PackedTensorAccessor32<T, 2, torch::RestrictPtrTraits> x, T* y) {
  gpuAtomicAdd(y, x[threadIdx.x][0]);
}
std::vector<at::Tensor> g(at::Tensor x) {
  TORCH_CHECK(x.is_cuda(), "not of a GPU");
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "g", [&] {
    auto all = x.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>();
    f<scalar_t><<<1, 1>>>(all, x.data_ptr<scalar_t>());
  });
  return {x};
}
"""
    folders = [*cpp_extension.include_paths("cuda"), *nvrtc.cuda_headers()]
    folders.append(sysconfig.get_path("include"))
    flags = [word for folder in folders for word in ("-isystem", folder)]
    words = ["-std=c++20" if word == "-std=c++17" else word for word in command(tmp_path, *flags)]
    inputs = Inputs(source, {source: text}, words, ["_Z1fIN3c104HalfEEvPT_"])
    program, code = program_of(inputs, [])
    program = program._replace(source=code.text())
    code, names = nvrtc.compile_program(program, ["f<float>", "f<c10::Half>"])
    assert names["f<float>"].startswith("_Z1fIfEv")
    assert names["f<c10::Half>"].encode() in code
