"""Device code that NVRTC compiles from a complete .cu file, and its replacement in a library."""

import _ctypes
import ctypes
import os
import re
import subprocess

import pytest

from _jit_loader.build.helpers import make_helper
from _jit_loader.cuda import embedded, nvrtc
from _jit_loader.cuda.device_code import compile_device_code, version_of
from _jit_loader.cuda.embedded import NotReplaceable, code_of, open_with_images, sections_of
from _jit_loader.cuda.nvrtc_options import Unsupported, nvrtc_options
from _jit_loader.key import toolchain
from _jit_loader.key.contents import Contents

needs_nvrtc = pytest.mark.skipif(
    nvrtc.library_path() is None, reason="PyTorch's wheel has no NVRTC"
)
needs_nvcc = pytest.mark.skipif(toolchain.why_no_cuda() is not None, reason="needs nvcc")

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


def compiled(folder, source=SOURCE, header=HEADER, flags=(), kernels=(KERNEL,)):
    texts = {f"{folder}/a.cu": source, f"{folder}/factor.h": header}
    for path, text in texts.items():
        with open(path, "w") as file:
            file.write(text)
    return compile_device_code(f"{folder}/a.cu", texts, command(folder, *flags), kernels)


@needs_nvrtc
def test_a_source_with_host_code_compiles(tmp_path):
    ((code, _),) = compiled(tmp_path)
    assert KERNEL.encode() in code
    assert re.fullmatch(rb"release \d+\.\d+, V[\d.]+", version_of(code))
    changed = HEADER.replace("3 * x", "4 * x")
    assert compiled(tmp_path, header=changed)[0][0] != code


@needs_nvrtc
def test_a_kernel_cannot_call_a_host_function(tmp_path):
    """nvcc refuses such a call; NVRTC finds no body for the function."""
    with pytest.raises(nvrtc.NvrtcError, match="NVRTC"):
        compiled(tmp_path, SOURCE.replace("if (i < n)", "if (i < blocks(n))"))


@needs_nvrtc
def test_an_error_names_the_line_of_a_header(tmp_path):
    header = HEADER.replace("int(n / 32) : 0; }", "0 : 0; }\n\n__device__ int f() { return z; }")
    with pytest.raises(nvrtc.NvrtcError) as caught:
        compiled(tmp_path, header=header)
    assert f'{tmp_path}/factor.h(6): error: identifier "z"' in caught.value.output


@needs_nvrtc
@pytest.mark.parametrize(
    ("source", "header"),
    [
        (SOURCE, "#include <vector>\n" + HEADER),
        (SOURCE, "#include <cub/cub.cuh>\n" + HEADER),
        ("#ifdef __NVCC__\n#endif\n" + SOURCE, HEADER),
        ("#if CUDART_VERSION > 12000\n#endif\n" + SOURCE, HEADER),
        ("#define NEW (CUDART_VERSION > 12000)\n#if NEW\n#endif\n" + SOURCE, HEADER),
        ("#ifndef M_PI\n#define M_PI 3.0f\n#endif\n" + SOURCE, HEADER),
        (SOURCE.replace("x[i])", "pow(x[i], 2))"), HEADER),
    ],
)
def test_what_nvrtc_cannot_compile_as_nvcc_does(tmp_path, source, header):
    with pytest.raises((Unsupported, nvrtc.NvrtcError)):
        compiled(tmp_path, source, header)


@needs_nvrtc
def test_a_guard_of_a_header_may_have_any_name(tmp_path):
    assert compiled(
        tmp_path, header=HEADER.replace("#pragma once", "#ifndef M_H\n#define M_H") + "#endif\n"
    )


@needs_nvrtc
def test_a_kernel_of_internal_linkage_is_refused(tmp_path):
    """nvcc gives it a name that only nvcc knows."""
    with pytest.raises(Unsupported, match="internal linkage"):
        compiled(tmp_path, kernels=[f"__nv_static_34__a1b2c3d4_4_a_cu_{KERNEL}"])


def test_options_of_nvrtc():
    flags = ["-DA=1", "-isystem", "/b", "-use_fast_math", "-lineinfo", "-ccbin", "g++"]
    options, folders, system = nvrtc_options(command("/a", *flags), "/a/a.cu")
    assert options == ["-arch=sm_80", "-std=c++17", "-DA=1", "-use_fast_math", "-lineinfo"]
    assert (folders, system) == (["/a"], ["/b"])


UNKNOWN = "-G -rdc=true -include=a.h -Xcompiler=-DA -Xptxas=-O1 -gencode=arch=compute_90,code=sm_90"


@pytest.mark.parametrize("flag", UNKNOWN.split())
def test_unknown_flags_are_refused(flag):
    with pytest.raises(Unsupported):
        nvrtc_options(command("/a", flag), "/a/a.cu")


# A runtime that keeps its calls.
RUNTIME = """\
struct Record { int magic, version; const char* fatbin; void* unused; };
extern "C" {
int images, kernels, finished, removed;
const Record* records[8];
void* handles[8];
const char* names[8];
int image_of[8];
void** __cudaRegisterFatBinary(const Record* record) {
  records[images] = record;
  return &handles[images++];
}
void __cudaRegisterFunction(void** handle, const char*, char*, const char* name, int limit, void*,
                            void*, void*, void*, int*) {
  image_of[kernels] = limit == -1 ? int(handle - handles) : -1;
  names[kernels++] = name;
}
void __cudaRegisterFatBinaryEnd(void**) { finished++; }
void __cudaUnregisterFatBinary(void**) { removed++; }
}
"""
THREE_KERNELS = "".join(
    f'extern "C" __global__ void {name}(int* x) {{ *x = 1; }}\n' for name in ("f", "g", "h")
)


@pytest.fixture
def library(tmp_path):
    """Returns the path of a library with three kernels, and a runtime that it is linked with."""
    runtime = tmp_path / "libcudart.so.99"
    (tmp_path / "runtime.cpp").write_text(RUNTIME)
    flags = ["-shared", "-fPIC", f"-Wl,-soname,{runtime.name}"]
    subprocess.run(["g++", *flags, tmp_path / "runtime.cpp", "-o", runtime], check=True)
    (tmp_path / "a.cu").write_text(THREE_KERNELS)
    return tmp_path / "a.so", ctypes.CDLL(runtime)


def link(library, *architectures):
    flags = ["-shared", "-Xcompiler=-fPIC", "-cudart=none", f"-L{library.parent}"]
    flags += ["-l:libcudart.so.99", "-Xlinker=--unresolved-symbols=ignore-all,-z,lazy"]
    targets = [f"-gencode=arch=compute_{number},code=sm_{number}" for number in architectures]
    command = [toolchain.nvcc_path(), *flags, *targets, library.with_name("a.cu"), "-o", library]
    subprocess.run(command, check=True)
    return library.read_bytes()


@needs_nvcc
@pytest.mark.usefixtures("cache")
def test_a_copy_of_a_library_registers_other_images(library):
    path, runtime = library
    data = link(path, "80")
    helper = make_helper(embedded.SOURCE, Contents())
    codes = [b"\x7fELF" + os.urandom(100_001 + i) for i in range(2)]
    images = [(codes[0], ["h"]), (codes[1], ["f", "g"])]
    opened = open_with_images(data, images, helper, path, lambda: ctypes.CDLL(path))
    counts = [ctypes.c_int.in_dll(runtime, n).value for n in ("images", "kernels", "finished")]
    assert counts == [2, 3, 2]
    names = (ctypes.c_char_p * 3).in_dll(runtime, "names")
    image_of = (ctypes.c_int * 3).in_dll(runtime, "image_of")
    assert dict(zip(names, image_of)) == {b"f": 1, b"g": 1, b"h": 0}
    records = (ctypes.POINTER(embedded.Record) * 2).in_dll(runtime, "records")
    for record, code in zip(records, codes):
        fatbin = embedded.fatbin_of(data, code)
        address = ctypes.c_void_p.from_buffer(record.contents, embedded.Record.fatbin.offset)
        assert ctypes.string_at(address.value, len(fatbin)) == fatbin
        assert fatbin.endswith(code + bytes(-len(code) % 8))
    _ctypes.dlclose(opened._handle)
    assert ctypes.c_int.in_dll(runtime, "removed").value == 2
    assert path.read_bytes() != data
    assert code_of(path.read_bytes()) == code_of(data)


@needs_nvcc
def test_code_for_two_gpus_is_refused(library):
    data = link(library[0], "80", "90")
    with pytest.raises(NotReplaceable):
        code_of(data)


def test_a_library_without_device_code_is_refused():
    with open(_ctypes.__file__, "rb") as file, pytest.raises(NotReplaceable):
        code_of(file.read())


TWO_KERNELS = """\
__device__ int next() { STATIC int count = 0; return ++count; }
template <class T> __global__ void f(T* x) { *x = next(); }
void launch(int* x, float* y) { f<<<1, 1>>>(x); f<<<1, 1>>>(y); }
"""
OF_INT, OF_FLOAT = "_Z1fIiEvPT_", "_Z1fIfEvPT_"


@needs_nvrtc
@pytest.mark.parametrize("static", ["", "static"])
def test_each_thread_compiles_some_kernels(tmp_path, monkeypatch, static):
    """Those that share a variable are in one image."""
    monkeypatch.setenv("MAX_JOBS", "2")
    images = compiled(tmp_path, TWO_KERNELS.replace("STATIC", static), kernels=[OF_INT, OF_FLOAT])
    expected = [[OF_INT, OF_FLOAT]] if static else [[OF_INT], [OF_FLOAT]]
    assert [names for _, names in images] == expected
    for code, names in images:
        sections = {name.decode() for name in sections_of(code)}
        assert {name for name in (OF_INT, OF_FLOAT) if f".text.{name}" in sections} == set(names)


@needs_nvrtc
def test_kernels_without_templates_are_in_one_image(tmp_path, monkeypatch):
    monkeypatch.setenv("MAX_JOBS", "2")
    assert len(compiled(tmp_path, THREE_KERNELS, kernels=["f", "g", "h"])) == 1
