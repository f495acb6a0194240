"""%%cpp and %%cuda compile a cell and put its functions into the notebook's namespace."""

from types import SimpleNamespace

import pytest
import torch

import jit_loader
from _jit_loader.notebook import inline_cell
from _jit_loader.notebook.inline_cell import compile_cell
from tests.support.nvrtc import needs_nvrtc

CELL = """\
%%cpp twice answer -O0 -D TWO=2 -I kernels -l m
static int two() { return TWO; }
int twice(int x) { return two() * x; }
#include "answer_math.h"
int answer() { return ANSWER; }
#include <pybind11/pybind11.h>
"""


def test_cpp_cell_defines_its_functions_or_shows_the_error(notebook):
    assert notebook.run(CELL).stderr.startswith("cell_twice: first build: compiling main.o")
    assert notebook.succeed("print(twice(4), answer(), 'two' in globals())") == "8 42 False"
    broken = CELL.replace("-O0", "-Wfatal-errors").replace("two() * x;", "two() * x")
    outcome = notebook.run(broken)
    assert "cell_twice: cell:2: error: expected" in outcome.shown_error
    assert "  2 | int twice(int x) { return two() * x }" in outcome.shown_error
    assert notebook.succeed("print(twice(4))") == "8"
    outcome = notebook.run(CELL.replace(" twice answer", ""))
    assert "name the functions to export, for example: %%cpp twice" in outcome.stderr


@pytest.mark.slow
@pytest.mark.nvcc
def test_cuda_cell_defines_a_function_that_launches_a_kernel():
    functions = compile_cell(
        "#ifndef __CUDACC__  // it takes nvcc seconds\n"
        "#include <pybind11/pybind11.h>\n"
        "#endif\n"
        "__global__ void write(float* x, float value) { x[threadIdx.x] = value; }\n"
        "int fill(long long address, int n, double value = 1) {\n"
        "  write<<<1, n>>>(reinterpret_cast<float*>(address), value);\n"
        "  return cudaDeviceSynchronize();\n"
        "}\n",
        ["fill", "-O0"],
        cuda=True,
    )
    assert list(functions) == ["fill"]
    if torch.cuda.is_available():
        x = torch.zeros(3, device="cuda")
        assert functions["fill"](x.data_ptr(), 3, 7) == 0
        assert x.tolist() == [7, 7, 7]


KERNELS = """\
#include <cuda_fp16.h>
static __device__ float twice(float x) { return 2 * x; }
__global__ void fill(float* x, float value) { x[threadIdx.x] = twice(value); }
extern "C" __global__ void __launch_bounds__(256) add(float* x) { x[threadIdx.x] += 1; }
template <class T> __global__ void other(T* x) { x[0] = 1; }
#define KERNEL extern "C" __global__ void
KERNEL any(float* x) { *x = 3; }
#if 0
__global__ void none() {}
#endif
__device__ const char* text = "__global__ void fake(int)";
"""


@needs_nvrtc
def test_a_cuda_cell_of_kernels_gives_them_without_a_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    assert list(compile_cell(KERNELS, [], cuda=True)) == ["add", "any", "fill"]
    assert list(compile_cell(KERNELS, ["add"], cuda=True)) == ["add"]


@needs_nvrtc
def test_errors_of_a_cell_of_kernels_name_its_line(tmp_path, monkeypatch):
    monkeypatch.setenv("JIT_LOADER_CACHE", str(tmp_path))
    # make() compiles only on a machine with a GPU.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    with pytest.raises(jit_loader.CompileError, match='cell:3: error: identifier "valu" is undef'):
        compile_cell(KERNELS.replace("twice(value)", "twice(valu)"), [], cuda=True)
    with pytest.raises(jit_loader.CompileError, match="-fnothing"):
        compile_cell(KERNELS, ["-fnothing"], cuda=True)


def test_a_cell_that_binds_its_functions_is_compiled_by_nvcc(monkeypatch):
    module = SimpleNamespace(f=None)
    monkeypatch.setattr(inline_cell, "load_inline", lambda name, **_: module)
    cell = f"{KERNELS}PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{}}\n"
    assert compile_cell(cell, [], cuda=True) == {"f": None}


@pytest.mark.parametrize(
    ("source", "declared"),
    [
        ("int f(int x) { return f(x); }", "int f(int x);"),
        (
            "at::Tensor f(const at::Tensor& a,\n  int b = 1) {\n}",
            "at::Tensor f(const at::Tensor& a,\n  int b = 1);",
        ),
        ('extern "C" int* f() noexcept {', 'extern "C" int* f() noexcept;'),
        ("int f(int x);\n// int f(int x) {\nint f(int x) {", "int f(int x);"),
        (
            "int g() {\n  if (f(1)) {\n    while (x == f(2)) {}\n  }\n}\nint f(int x) {",
            "int f(int x);",
        ),
    ],
)
def test_binding_declares_a_function_of_a_cuda_cell(source, declared, monkeypatch):
    def load_inline(name, **arguments):
        return SimpleNamespace(f=arguments["cpp_sources"])

    monkeypatch.setattr(inline_cell, "load_inline", load_inline)
    found = compile_cell(source, ["f"], cuda=True)["f"]
    assert "".join(found.split()) == "".join(declared.split())


@pytest.mark.parametrize(
    ("source", "words", "said"),
    [
        ("int f(int x) {}\nint f(float x) {}", ["f"], "the cell has 2 definitions of f"),
        (KERNELS + "int f() {}", ["f", "add"], "the cell has 0 definitions of add"),
        ("int f() {}", [], "name the functions to export, for example: %%cuda twice"),
        ("__global__ void k() {}\nvoid f() { k<<<1, 1>>>(); }", [], "name the functions to export"),
        ("#include <torch/types.h>\n__global__ void k() {}", [], "name the functions to export"),
    ],
)
def test_cuda_cells_that_cannot_be_bound_are_refused(source, words, said):
    with pytest.raises(ValueError, match=said):
        compile_cell(source, words, cuda=True)
