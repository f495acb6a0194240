"""%%cpp and %%cuda compile a cell and put its functions into the notebook's namespace."""

import pytest
import torch

import jit_loader
from _jit_loader.cuda import nvrtc_files
from _jit_loader.notebook import inline_cell
from _jit_loader.notebook.cpp_functions import declarations
from _jit_loader.notebook.inline_cell import compile_cell

CELL = """\
%%cpp -O0 -DTWO=2
static int two() { return TWO; }
int twice(int x) { return two() * x; }
int thrice(int x) { return 3 * x; }
#include <pybind11/pybind11.h>
"""


def test_cpp_cell_defines_its_functions_or_shows_the_error(notebook):
    assert notebook.run(CELL).stderr.startswith("cell_twice: first build: compiling main.o")
    assert notebook.succeed("print(twice(4), thrice(4), 'two' in globals())") == "8 12 False"
    broken = CELL.replace("-O0", "-Wfatal-errors").replace("two() * x;", "two() * x")
    outcome = notebook.run(broken)
    assert "cell_twice: cell:2: error: expected" in outcome.shown_error
    assert "  2 | int twice(int x) { return two() * x }" in outcome.shown_error
    assert notebook.succeed("print(twice(4))") == "8"
    outcome = notebook.run(CELL.replace("%%cpp", "%%cpp four"))
    assert "the cell defines no function four that can be called" in outcome.stderr


@pytest.mark.slow
def test_folders_in_flags_are_relative_to_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.h").write_text("#define MINE 5\n")
    cell = '#include <pybind11/pybind11.h>\n#include "mine.h"\nint mine() { return MINE; }\n'
    assert compile_cell(cell, ["-O0", "-I."], cuda=False)["mine"]() == 5


@pytest.mark.slow
def test_cuda_cell_defines_a_function_that_launches_a_kernel():
    if why_no_cuda := jit_loader.why_no_cuda():
        pytest.skip(why_no_cuda)
    functions = compile_cell(
        "#ifndef __CUDACC__  // it takes nvcc seconds\n"
        "#include <pybind11/pybind11.h>\n"
        "#endif\n"
        "__global__ void write(float* x, float value) { x[threadIdx.x] = value; }\n"
        "int fill(long long address, int n, double value = 1) {\n"
        "  write<<<1, n>>>(reinterpret_cast<float*>(address), value);\n"
        "  return cudaDeviceSynchronize();\n"
        "}\n",
        ["-O0"],
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
"""


def test_a_cuda_cell_of_kernels_gives_them_without_a_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    found = compile_cell(KERNELS, [], cuda=True)
    assert list(found) == ["fill", "add"]
    assert list(compile_cell(KERNELS, ["add", "-O3"], cuda=True)) == ["add"]
    with pytest.raises(ValueError, match="defines no kernel sub; it has fill, add"):
        compile_cell(KERNELS, ["sub"], cuda=True)


def test_errors_of_a_cell_of_kernels_name_its_line(tmp_path, monkeypatch):
    if nvrtc_files.library_path() is None:
        pytest.skip("PyTorch's wheel has no NVRTC")
    monkeypatch.setenv("JIT_LOADER_CACHE", str(tmp_path))
    # make() compiles only on a machine with a GPU.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    with pytest.raises(jit_loader.CompileError, match='cell:3: error: identifier "valu" is undef'):
        compile_cell(KERNELS.replace("twice(value)", "twice(valu)"), [], cuda=True)
    with pytest.raises(jit_loader.CompileError, match="-fnothing"):
        compile_cell(KERNELS, ["-fnothing"], cuda=True)


@pytest.mark.parametrize(
    "more",
    [
        "int f() { return 1; }",
        "#include <torch/types.h>",
        "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}",
    ],
)
def test_a_cell_with_host_code_is_compiled_by_nvcc(more, monkeypatch):
    class Compiled(Exception):
        pass

    def compiled(*arguments, **options):
        raise Compiled

    monkeypatch.setattr(inline_cell, "load_inline", compiled)
    with pytest.raises((Compiled, ValueError)) as error:
        compile_cell(f"{KERNELS}{more}\n", [], cuda=True)
    assert error.type is Compiled or "defines no function" in str(error.value)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("int f(int x) { return x; }", {"f": "int f(int x);"}),
        ("at::Tensor f(const at::Tensor& a,\n  int b = 1) {}", {"f": None}),
        ("std::tuple<int, int> f() {}\nvoid g(std::function<int(int)> h) {}", {"f", "g"}),
        ("auto f(int x) -> int {}", {"f": "auto f(int x) -> int;"}),
        ("int* f() noexcept {}", {"f"}),
        ('extern "C" int f() {}', {"f": 'extern "C" int f();'}),
        ("int f(char c = '{', S s = \"a, b\") {}", {"f": "int f(char c = '{', S s = \"a, b\");"}),
        ("__host__ int f() {}", {"f"}),
        ("static int f() {} inline int g() {} constexpr int h() { return 1; }", {}),
        ("template <class T> T f(T x) {} struct S { int f() {} };", {}),
        ("__global__ void f() {} __device__ int g() {}", {}),
        ("namespace { int f() {} } namespace a { int g() {} }", {}),
        ('int f(int x);  // int g() {}\n/* int h() {} */ const char* s = "int i() {}";', {}),
        ("#define F int f() {}\n#define G \\\n  int g() {}\nint h() {}", {"h"}),
        ("int S::f() {} S::S() {} auto l = [](int x) { return x; };", {}),
        ("int x = 1'000'000; int f() { return '{'; } int g() {}", {"f", "g"}),
        ('const char* s = R"(}{ ")"; int f() {}', {"f"}),
        ("PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { if (a) {} }", {}),
        ("bool operator==(A a, B b) {}", {}),
        (
            "#if 0\nint f() {}\n#if 1\n#else\n#endif\n#else\nint g() {}\n#endif\nint h() {}",
            {"g", "h"},
        ),
        (
            'extern "C" {\nint f() {}\nint g() {}\n}\nint h() {}',
            {"f": 'extern "C" int f();', "g": None, "h": "int h();"},
        ),
        ("int f(V v = {1, {2}}) {} int g() {}", {"f": "int f(V v = {1, {2}});", "g": "int g();"}),
        ("V v{1, 2}; struct S { int x = 1; } s; int f() {}", {"f": "int f();"}),
        ("int x = 1; } ) int f() {}", {}),
        ("GENERATE(one, 1)\nint f(int x) {}", {"f": "int f(int x);"}),
        ("__attribute__((noinline)) int f() {} GENERATE(a)\nauto g(int x) -> int {}", {"f", "g"}),
        ("#define F(x) 1\nint f() {} int g(int x) noexcept {}", {"f", "g"}),
        ("", {}),
    ],
)
def test_functions_in_a_source_are_found(source, found):
    declared = declarations(source)
    assert declared.keys() == set(found)
    for name, declaration in found.items() if isinstance(found, dict) else ():
        assert declaration in (None, *declared[name])


@pytest.mark.parametrize(
    ("source", "words", "said"),
    [
        ("int f(int x) {} int f(float x) {}", [], "the cell defines f 2 times: give each function"),
        ("int lambda(int x) {}", [], "Python cannot call a function named lambda"),
        ("static int f() {}", [], "the cell defines no function that can be called"),
        ("int f(int x) {} int f(float x) {} int g() {}", ["h"], "the cell defines no function h"),
    ],
)
def test_functions_that_cannot_be_called_are_refused(source, words, said):
    with pytest.raises(ValueError, match=said):
        compile_cell(source, words, cuda=False)
