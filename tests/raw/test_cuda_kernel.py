"""Tests cuda_kernel: a kernel compiled by NVRTC, its cache and its errors."""

import os
import re

import pytest
import torch

import jit_loader
from _jit_loader.cache.pruning import manifests
from _jit_loader.commands import main
from _jit_loader.cuda import nvrtc
from _jit_loader.raw import kernel as kernels
from tests.support.nvrtc import needs_nvrtc

KERNEL = """
extern "C" __global__ void scale(float* y, const float* __restrict__ x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = FACTOR * a * x[i];
}
template <class T> __global__ void fill(T* y, T value, long n) {
  extern __shared__ float memory[];
  for (long i = threadIdx.x; i < n; i += blockDim.x) y[i] = value;
}
"""
SCALE = '#include "factor.h"' + KERNEL
TYPES = """
#include <cuComplex.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cstdint>
typedef int myint; using fptr = float*; struct Params { int n; float a; }; enum Mode { kA, kB };
"""
pytestmark = needs_nvrtc


def make(folder, name="scale", source=SCALE, path=None, defines=(), options=()):
    """Returns a kernel whose headers are searched for in a folder, or in those of a list."""
    folders = folder if isinstance(folder, list) else [folder]
    return kernels.Kernel(source, path, name, dict(defines), folders, options)


def code_of(*arguments, **options):
    return make(*arguments, **options).compile("sm_90a")[0]


def types_of(parameters, before='extern "C"'):
    """Returns the types of a kernel with these parameters."""
    source = f"{TYPES}\n{before} __global__ void k({parameters}) {{}}\n"
    kernel = make([], "k", source, defines={"REAL": "float"})
    kernel.compile("sm_90a")
    return kernel.signature.types


def test_a_kernel_is_cached_until_a_header_changes(folder):
    code, symbol = make(folder).compile("sm_90a")
    assert symbol == "scale"
    assert make(folder).compile("sm_90a") == (code, symbol)
    assert len(list(manifests())) == 1
    (folder / "factor.h").write_text("#define FACTOR 3.f\n")
    assert code_of(folder) != code
    (folder / "factor.h").write_text("#define FACTOR 2.f\n")
    assert code_of(folder) == code
    assert [manifest["name"] for _, manifest in manifests()] == ["cuda_kernel.scale"] * 2
    # Tools find the lines of a source that is a text: its line information names this file.
    path, *_ = folder.glob("cache/*/cuda_kernel.scale/*/source.cu")
    assert path.read_text() == SCALE


def test_list_inspect_and_clean_accept_kernels(folder, capsys):
    make(folder).compile("sm_90a")
    assert main(["list"]) == 0
    assert "cuda_kernel.scale" in capsys.readouterr().out
    assert main(["inspect", "cuda_kernel.scale"]) == 0
    assert "NVRTC compiled it" in capsys.readouterr().out
    assert main(["clean", "cuda_kernel.scale"]) == 0
    assert not list(manifests())


def test_an_error_has_its_line(folder):
    with pytest.raises(jit_loader.CompileError) as error:
        make(folder, source=SCALE.replace("int n", "itn n")).compile("sm_90a")
    assert 'source.cu:2: error: identifier "itn" is undefined' in str(error.value)
    assert "  2 | extern" in str(error.value)


def test_a_hit_needs_only_a_memo(folder, monkeypatch):
    """A search of the cache by content takes 8 ms instead of 1."""
    source = KERNEL.replace("FACTOR", "2.f")
    code = code_of(folder, "fill<double>", source)
    monkeypatch.setattr("_jit_loader.cache.store.Builds.find", None)
    kernel = make(folder, "fill<double>", source)
    assert kernel.compile("sm_90a")[0] == code
    assert str(kernel.signature) == "fill<double>(double*, double, long)"


def test_macros_make_separate_builds(folder):
    source = SCALE.replace("FACTOR", "EXTRA")
    three, four = (code_of(folder, source=source, defines={"EXTRA": n}) for n in (3, 4))
    assert three != four
    assert {found["request"]["variant"] for _, found in manifests()} == {"EXTRA=3", "EXTRA=4"}


def test_a_file_includes_headers_beside_it_and_those_of_the_project(folder):
    (folder / "kernels").mkdir()
    (folder / "kernels" / "beside.h").write_text("#define BESIDE 2\n")
    text = (
        '#include "beside.h"\n#include "kernels/beside.h"\n#include <cstdint>\n'
        "template <class T> __global__ void twice(T* y, std::int64_t n) { y[n] *= BESIDE; }\n"
    )
    file = {"source": text, "path": str(folder / "kernels" / "twice.cu")}
    code = code_of(folder, "twice<float>", **file)
    (folder / "kernels" / "beside.h").write_text("#define BESIDE 3\n")
    assert code_of(folder, "twice<float>", **file) != code


def test_a_header_that_appears_before_another_is_noticed(folder):
    (folder / "first").mkdir()
    folders = [folder / "first", folder]
    code = code_of(folders)
    assert code_of(folders) == code
    (folder / "first" / "factor.h").write_text("#define FACTOR 9.f\n")
    assert code_of(folders) != code


def test_a_changed_header_of_cuda_is_a_change_and_an_absent_one_is_not(folder, monkeypatch):
    toolkit = folder / "toolkit"
    inner = toolkit / "cuda" / "std" / "limits"
    inner.parent.mkdir(parents=True)
    (toolkit / "cuda_fp16.h").write_text("#include <limits>\n#include MACRO_IS_PASSED_OVER\n")
    inner.write_text("#define INNER 1.f\n")
    for module in (kernels, __import__("_jit_loader.raw.compile", fromlist=["_"])):
        monkeypatch.setattr(module, "cuda_headers", lambda: [str(toolkit)])
    includes = '#if 0\n#include "cuda_fp16.h"\n#endif\n#include <limits>\n'
    source = includes + SCALE.replace("FACTOR", "INNER")
    code = code_of(folder, source=source)
    assert code_of(folder, source=source) == code
    inner.write_text("#define INNER 2.f\n")
    changed = code_of(folder, source=source)
    assert changed != code
    inner.unlink()
    assert code_of(folder, source=source) in (code, changed)


GROUP = "namespace g = cooperative_groups; auto w = g::tiled_partition<32>(g::this_thread_block());"
QUICK = {
    "cstdint": "std::int64_t i = 1; long& same = i; x[sizeof(uint8_t)] = same;",
    "cfloat": "*x = FLT_MAX;",
    "cuda.h": "",
    "mma.h": "",
    "cuda_pipeline.h": "__pipeline_commit(); uint32_t i = 0; x[i] = 1;",
    "limits": "*x = std::numeric_limits<float>::infinity();",
}
SLOW = {
    "type_traits": "static_assert(std::is_same_v<std::remove_pointer_t<decltype(x)>, float>);",
    "array": "auto [i, j] = std::array<float, 2>{1, 2}; x[0] = i; x[1] = j;",
    "cuda/std/cstdint": "cuda::std::int64_t i = 1; long& same = i; *x = same;",
    "cuda/atomic": "cuda::atomic_ref<float, cuda::thread_scope_device>(*x).fetch_add(1.f);",
    "curand_kernel.h": "curandStatePhilox4_32_10_t s; *x = curand_uniform(&s);",
    "cooperative_groups/reduce.h": f"{GROUP} *x = g::reduce(w, *x, g::plus<float>());",
    "cub/cub.cuh": "using R = cub::BlockReduce<float, 128>; __shared__ R::TempStorage t; "
    "*x = R(t).Sum(*x);",
}
HEADERS = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]


def has_cccl():
    return any(os.path.exists(f"{folder}/nv/target") for folder in nvrtc.cuda_headers())


@pytest.mark.skipif(not has_cccl(), reason="CCCL is not installed")
@pytest.mark.parametrize("header", HEADERS)
def test_headers_of_cuda_and_the_cpp_library_need_no_gcc(folder, monkeypatch, header):
    monkeypatch.setenv("PATH", "")
    statement = {**QUICK, **SLOW}[header]
    kernel = f"__global__ void k(float* x) {{ {statement} }}"
    assert code_of(folder, "k", f"#include <{header}>\n{kernel}")


def test_an_error_names_the_package_of_a_missing_header(folder, monkeypatch):
    folders = [path for path in nvrtc.cuda_headers() if "cccl" not in path][:1]
    monkeypatch.setattr("_jit_loader.raw.compile.cuda_headers", lambda: folders)
    with pytest.raises(jit_loader.CompileError, match=r"pip install .*cuda-toolkit\[nvcc,cccl\]=="):
        make(folder, "k", "#include <limits>\n__global__ void k() {}").compile("sm_90a")


@pytest.mark.parametrize("name", ["scal", "fill"])
def test_a_name_that_no_kernel_has_is_an_error(folder, name):
    said = f"the source has no kernel {name}, or several .* such as fill<float>"
    with pytest.raises(jit_loader.CompileError, match=said):
        make(folder, name).compile("sm_90a")


def test_compiling_can_be_forbidden(folder, monkeypatch):
    monkeypatch.setenv("JIT_LOADER_NO_COMPILE", "1")
    with pytest.raises(RuntimeError, match="scale has to be compiled, but JIT_LOADER_NO"):
        make(folder).compile("sm_90a")


def test_identity_of_nvrtc_depends_on_its_build_and_not_on_its_place(tmp_path, monkeypatch):
    with open(nvrtc.library_path(), "rb") as file:
        content = bytearray(file.read(4096))
    expected = nvrtc.identity()
    library = tmp_path / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13"
    library.parent.mkdir(parents=True)
    monkeypatch.setattr(torch, "__path__", [str(tmp_path / "torch")])
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    library.write_bytes(content)
    assert nvrtc.identity() == expected
    content[64 + 32] ^= 1  # the size of the first segment
    library.write_bytes(content)
    assert nvrtc.identity() != expected


@pytest.mark.parametrize("before", ['extern "C"', ""])
def test_the_types_of_parameters_are_those_of_the_compiler(folder, before):
    written = (
        "const float* __restrict__ x, const __grid_constant__ int n, myint m, fptr p, REAL a, "
        "uint8_t* u, int64_t i, cuFloatComplex* z, const void* v, __nv_fp8_e4m3* e, float y[], "
        "unsigned const s, half2* h"
    )
    assert types_of(written, before) == [
        *("float const*", "int", "int", "float*", "float", "unsigned char*", "long", "float2*"),
        *("void const*", "__nv_fp8_e4m3*", "float*", "unsigned int", "__half2*"),
    ]
    assert types_of("", before) == []


@pytest.mark.parametrize("parameter", ["Params p", "float4 v", "Mode m", "float** xs"])
def test_a_parameter_that_python_cannot_pass_is_refused(folder, parameter):
    type_ = parameter.split()[0]
    with pytest.raises(ValueError, match=rf"of the type {re.escape(type_)} cannot be passed from"):
        types_of(parameter)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("__global__ void __cluster_dims__(2, 1, 1) k(int* x) { *x = 1; }", "k"),
        ("__global__ void __launch_bounds__((64), (1)) k(int* x) { *x = 1; }", "k"),
        ("__global__ __maxnreg__(32) void k(int* x) { *x = 1; }", "k"),
        ("[[maybe_unused]] static __attribute__((global)) void k(int* x) { *x = 1; }", "k"),
        ('__device__ const char* t = "__global__ void k(float)"; __global__ void k(int*) {}', "k"),
        ('extern "C" __global__ void any(int* x) { *x = 1; }', "any"),
        ("__global__ void k(int* x) {} __global__ void k(float* x) {}", "(void (*)(int*))k"),
        ("namespace a { template <class T, int N> __global__ void k(T* x) {} }", "a::k<int, 4>"),
    ],
)
def test_kernels_are_found_by_the_compiler(folder, source, name):
    kernel = make(folder, name, source)
    kernel.compile("sm_90a")
    assert kernel.signature.types == ["int*"]


def test_headers_in_folders_of_options_are_noticed(folder):
    options = [f"-I{folder}"]
    first = code_of([], options=options)
    assert code_of([], options=options) == first
    (folder / "factor.h").write_text("#define FACTOR 3.f\n")
    assert code_of([], options=options) != first


def test_flags_that_nvrtc_reads_from_the_environment_count(folder, monkeypatch):
    codes = set()
    for flags in ("", "-DFACTOR=3.f"):
        monkeypatch.setenv("NVRTC_APPEND_FLAGS", flags)
        codes.add(code_of([], source="#ifndef FACTOR\n#define FACTOR 2.f\n#endif\n" + KERNEL))
    assert len(codes) == 2


@pytest.mark.parametrize(
    "include", ["#include HEADER", '#include /**/ "factor.h"', "#include_next <factor.h>"]
)
def test_an_include_that_is_not_a_plain_name_is_refused(folder, include):
    with pytest.raises(ValueError, match="the name of an include must not be"):
        make(folder, source=f"{include}\n{SCALE}").compile("sm_90a")


def test_a_cache_that_others_can_write_to_is_refused_before_it_is_read(folder):
    make(folder).compile("sm_90a")
    (manifest,) = folder.glob("cache/*/cuda_kernel.scale/*/*/manifest.json")
    manifest.write_text("not read")
    manifest.parents[3].chmod(0o777)
    with pytest.raises(PermissionError, match="can be written by other users"):
        make(folder).compile("sm_90a")
