"""Tests which edits of CUDA sources affect device code only, on the ops and on small sources.

The reference is cudafe++, which splits a source: an edit that is classified as one of device code
must not change the text that cudafe++ writes for the host compiler.
"""

# ruff: noqa: E501

import re
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from _jit_loader.cuda import preprocess as preprocessing
from _jit_loader.cuda.declarations import tokens_of
from _jit_loader.cuda.preprocess import NotUnderstood, preprocess
from _jit_loader.key import toolchain
from _jit_loader.live.host_code import HostCode, constants, host_code
from tests.support.extension import ROOT, write, write_files

pytestmark = pytest.mark.nvcc

ELEMENTWISE, REDUCTION = "kernels/shared/elementwise.cuh", "kernels/shared/reduction.cuh"
HALF = "kernels/shared/half.h"
LLTM, TRILINEAR = "kernels/lltm.cu", "kernels/trilinear_interpolation.cu"

# (op, file, old text, new text)
OF_DEVICE = [
    ("add2", ELEMENTWISE, "if (begin + (count - 1)", "if (begin + (count - 1) * 2"),
    ("add2", ELEMENTWISE, "#pragma unroll\n  for (int v = 0", "#pragma unroll 4\n  for (int v = 0"),
    ("add2", ELEMENTWISE, "template <class Out>\nconstexpr", "template <class Out>   constexpr"),
    ("add2", ELEMENTWISE, "  uint4 bits;\n", "#define BITS 1\n  uint4 bits;\n"),
    ("sum_single", REDUCTION, "#if __CUDA_ARCH__ >= 900\n  asm volatile(\"griddepcontrol.wait", "#if __CUDA_ARCH__ >= 800\n  asm volatile(\"griddepcontrol.wait"),
    ("sum_single", REDUCTION, '"griddepcontrol.wait;"', '"griddepcontrol.wait; // {"'),
    ("lltm", LLTM, "  total[i] = narrow<T>(sum);", "  struct A { T x; } a{narrow<T>(sum)};\n  total[i] = a.x;"),
    ("lltm", LLTM, "  total[i] = narrow<T>(sum);", "  enum A { one = 1 };\n  total[i] = narrow<T>(sum * one);"),
    ("lltm", LLTM, "  total[i] = narrow<T>(sum);", "  total[i] = narrow<T>(sum + kVectorSize<Pair<char>>);"),
    ("lltm", LLTM, "  total[i] = narrow<T>(sum);", "  auto k = &step<char, true>;\n  total[i] = narrow<T>(sum + (k != nullptr));"),
    ("lltm", LLTM, "  total[i] = narrow<T>(sum);", "  auto f = [&] { total[i] = narrow<T>(sum); };\n  f();"),
    ("lltm", LLTM, "  Accumulate<T> sum{0};", "  using A = Accumulate<T>;\n  typedef A B;\n  B sum{0};"),
    ("trilinear_interpolation", TRILINEAR, "* kThreadsPerBlock + threadIdx.x; }", "* kThreadsPerBlock + threadIdx.x + 0; }"),
]  # fmt: skip
OF_HOST_TOO = [
    ("add2", "kernels/add2.cu", "elementwise<Add2>", "elementwise<Add2 >(where, n, c, a, b); elementwise<Add2>"),
    ("add2", "kernels/add2.cu", "FOR_FLOATING(INSTANTIATE)", "INSTANTIATE(float)"),
    ("add2", "kernels/add2.cu", '#include "kernels/add2.h"\n', '#include <math.h>\n#include "kernels/add2.h"\n'),
    ("add2", ELEMENTWISE, "16 / sizeof(T)", "8 / sizeof(T)"),
    ("add2", ELEMENTWISE, "__global__ void __launch_bounds__(kThreadsPerBlock)\n    elementwise_v", "__global__ void __launch_bounds__(kThreadsPerBlock, 2)\n    elementwise_v"),
    ("add2", ELEMENTWISE, "__device__ void store_vector", "__host__ __device__ void store_vector"),
    ("add2", ELEMENTWISE, "uint4 bits;\n", "uint4 bits;\n#define value values\n"),
    ("add2", "kernels/add2_math.h", "    return a + b;", "    static T c = a;\n    return b;"),
    ("add2", "kernels/add2_math.h", "T operator()(T a, T b)", "T operator()(T b, T a)"),
    ("add2", HALF, "HOST_DEVICE uint32_t select", "inline uint32_t select"),
    ("two_norm", "kernels/two_norm_math.h", "T{0} : grad)", "T{1} : grad)"),
]  # fmt: skip


def sources(op):
    """Returns {path in the project: text} of an op's .cu file and its headers."""
    found, waiting = {}, {f"kernels/{op}.cu"}
    while waiting:
        name = waiting.pop()
        found[name] = (ROOT / name).read_text()
        waiting |= {*re.findall(r'#include "(.*)"', found[name])} - found.keys()
    return found


def edited(texts, file, old, new):
    assert texts[file].count(old) >= 1, old
    return {**texts, file: texts[file].replace(old, new, 1)}


def command(source, *flags):
    flags = ["-std=c++17", "-gencode=arch=compute_80,code=sm_80", "-I/project", *flags]
    return ["nvcc", *flags, "-c", source, "-o", "a.o"]


def is_of_device(before, after, *flags):
    source = next(f"/project/{name}" for name in before if name.endswith(".cu"))
    versions = [{f"/project/{n}": text for n, text in each.items()} for each in (before, after)]
    words = command(source, *flags)
    try:
        old, new = (host_code(source, texts, words) for texts in versions)
    except NotUnderstood:
        return False
    return old == new


@pytest.mark.parametrize(("op", "file", "old", "new"), OF_DEVICE)
def test_edits_of_device_code_are_recognized(op, file, old, new):
    texts = sources(op)
    assert is_of_device(texts, edited(texts, file, old, new))


@pytest.mark.parametrize(("op", "file", "old", "new"), OF_HOST_TOO)
def test_edits_that_can_reach_host_code_count_as_host_code(op, file, old, new):
    texts = sources(op)
    assert not is_of_device(texts, edited(texts, file, old, new))


# In each text, 1 becomes 2. Host code depends on the edited part, or may depend on it.
DOUBTS = {
    "a deduced type": "__device__ auto f() { return 1; }",
    "a constant expression": "__device__ constexpr int f() { return 1; }",
    "both": "__host__ __device__ int f() { return 1; }",
    "both, called by kernels alone": "inline __host__ __device__ int f() { return 1; }\n__global__ void g(int* x) { *x = f(); }",
    "a member's default": "struct A { int x = 1; __device__ int f() { return x; } };",
    "a variable": "__device__ int x{1};",
    "a launch": "__global__ void g(); __device__ void f() { g<<<1, 1>>>(); }",
    "a static variable": "__device__ int f() { static int x = 1; return x; }",
    "a lambda for the host": "auto f = [] __device__ () { return 1; };",
    "an enumeration": "enum A { x = 1 };",
    "an expression in a template": "template <int n = sizeof(int[1])> __device__ void f() {}",
    "both, by a macro": "#define BOTH __host__\nBOTH __device__ int f() { return 1; }",
    "a macro of an attribute": "#define __device__\n__device__ int f() { return 1; }",
    "lines": "__device__ int f() { return 1; }\nenum { tag = __LINE__ };",
    "lines in parentheses": "__device__ int f() { return 1; }\nconstexpr int tag = (__LINE__);",
    "lines of a call": "__device__ int f() { return 1; }\nconstexpr int tag = id(__LINE__);",
    "lines in a condition": "__device__ int f() { return 1; }\n#define L __LINE__\n#if L > 3\nint x;\n#endif",
    "lines of a function": "__device__ int f() { return 1; }\nint line = __builtin_LINE();",
    "a virtual function": "struct A { virtual __device__ int f() { return 1; } };",
    "a requirement": "template <class T> requires (sizeof(T) == 1) __device__ void f() {}",
    "an initializer that looks like a function": "struct A x = { [] __device__ (int y) { return 1; } };",
    "a raw text": 'const char* a = R"x(\n__device__ int f() { return 1; })x";',
    "a directive in a raw text": 'const char* a = R"x(\n#define N 1\n)x";',
    "a digraph": "__device__ int f() <% return 1; %>",
    "an operator": "__device__ A operator+(A, A) { return 1; }",
    "declared for both": "__host__ __device__ int f();\n__device__ int f() { return 1; }",
    "declared for the host": "int f();\n__device__ int f() { return 1; }",
    "declared by its qualified name": "template <> void std::swap(A&, A&);\ntemplate <> __device__ void std::swap(A&, A&) { 1; }",
    "a constructor that is declared for both": "struct A { __host__ __device__ A(); int x; };\n__device__ A::A() { x = 1; }",
    "a friend for both": "struct A { friend int f(int); };\n__device__ int f(int) { return 1; }",
    "a template for both": "template <class T> __host__ __device__ T f(T);\ntemplate <> __device__ int f<int>(int x) { return 1; }",
    "a friend that is defined in its class": "struct A { friend __device__ int f(A) { return 1; } };\n__host__ __device__ int f(A);",
    "declared in a function": "int g() { __host__ __device__ int f(); return f(); }\n__device__ int f() { return 1; }",
    "a function that replaces one of CUDA's": "__device__ double tgamma(double x) { return 1; }\ndouble g() { return std::tgamma(3); }",
    "used after dots": "template <class... T> int g(T... x) { return h(x...f()); }\n__device__ int f() { return 1; }",
    "declared with brackets": "__host__ __device__ int (f)();\n__device__ int f() { return 1; }",
    "declared by its type": "__host__ __device__ decltype(g) f;\n__device__ int f() { return 1; }",
    "both, by an attribute": "__attribute__((host)) __device__ int f() { return 1; }",
    "both, by an attribute without its last _": "__attribute((host)) __device__ int f() { return 1; }",
    "a parameter that is named device": "int f([[maybe_unused]] int device) { return 1; }",
    "both, by an attribute of C++": "__device__ [[gnu::host]] int f() { return 1; }",
    "the time": "__device__ int f() { return 1; }\nconst char* time = __TIME__;",
    "an include in a declaration": '__host__\n#include "f.inc"\n__device__ int f() { return 1; }',
    "a counter": "#define F2 __COUNTER__ +\n__device__ int f() { return F1 3; }\nint x = __COUNTER__;",
    "a specialization": "template <> struct std::hash<A> { __host__ __device__ int operator()(A) { return 1; } };",
    "a member of a type of host code": "struct A { __host__ __device__ void unlock() { x = 1; } int x; };\nstd::lock_guard<A> a;",
    "a header that is not included": "__device__ int f() {\n#if __has_include(<cuda_fp16.h>)\nreturn 1;\n#endif\n}",
    "a pragma": '__device__ int f() { _Pragma("pack(1)") return 1; }\nstruct A { int x; };',
}  # fmt: skip


def test_headers_of_the_same_text_are_read_one_by_one():
    first = '#pragma once\n#include "b.h"\n'
    texts = {"a.cu": '#include "c/a.h"\n#include "d/a.h"\n', "c/a.h": first, "d/a.h": first}
    texts |= {"c/b.h": "int f();\n", "d/b.h": "int g() { return 1; }\n"}
    assert not is_of_device(texts, edited(texts, "d/b.h", "1", "2"))


def test_a_name_in_a_flag_counts():
    text = "__host__ __device__ int NAME();\n__device__ int f() { return 1; }"
    before, after = ({"a.cu": text.replace("1", value)} for value in "12")
    assert not is_of_device(before, after, "-DNAME=f")
    assert is_of_device(before, after)


def test_flags_may_change_what_nvcc_lists_and_what_is_an_error():
    before, after = ({"a.cu": f"__device__ int f() {{ return {value}; }}"} for value in "12")
    assert is_of_device(before, after, "--threads", "4")
    assert is_of_device(before, after, "-Xcompiler=-Werror")


def test_a_text_that_is_not_understood_stays_so(tmp_path):
    """Nothing that was kept of a header is used once it has changed."""
    header = write(tmp_path / "h.h", "#pragma once\n#define A one\n")
    words = command("/project/a.cu", "-isystem", str(tmp_path))
    text = "#include <h.h>\n#include <h.h>\nint n = A;\n"
    host_code("/project/a.cu", {"/project/a.cu": text}, words)
    header.write_text("#ifdef A\n#undef A\n#define A two\n#else\n#define A one\n#endif\n")
    for number in (1, 2):
        with pytest.raises(NotUnderstood, match="depends on the order of headers"):
            host_code("/project/a.cu", {"/project/a.cu": f"{text}// {number}\n"}, words)


def test_a_header_that_changes_while_gcc_reads_it_is_not_understood(tmp_path, monkeypatch):
    header = write(tmp_path / "h.h", "#define A one\n")
    run = preprocessing.run
    monkeypatch.setattr(preprocessing, "run", lambda words: (run(words), header.touch())[0])
    words = command("/project/a.cu", "-isystem", str(tmp_path))
    with pytest.raises(NotUnderstood, match="a header has just changed"):
        host_code("/project/a.cu", {"/project/a.cu": "#include <h.h>\n"}, words)


def test_a_header_that_is_included_as_one_of_the_system_is_not_understood(tmp_path):
    """Its text is not part of the preprocessed text."""
    header = write(tmp_path / "b.h", "int g() { return 1; }")
    texts = {"/project/a.cu": "#include <b.h>\n", str(header): header.read_text()}
    words = command("/project/a.cu", "-isystem", str(tmp_path))
    with pytest.raises(NotUnderstood, match="header of the system"):
        host_code("/project/a.cu", texts, words)


@pytest.mark.parametrize("text", DOUBTS.values(), ids=DOUBTS)
def test_edits_in_doubt_count_as_host_code(text):
    after = text.replace("1", "2\n" if "__LINE__" in text else "2")
    assert not is_of_device({"a.cu": text}, {"a.cu": after})


def test_lines_may_be_added():
    """Until the complete build, messages of TORCH_CHECK have the old number."""
    text = "__device__ int f() { return 1; }\n#define CHECK(x) x ? 0 : fail(__FILE__, __LINE__)\nint y = CHECK(z);"
    assert is_of_device({"a.cu": text}, {"a.cu": text.replace("1", "\n2")})


def test_constants_are_variables_that_nothing_can_write():
    text = """
        __constant__ float a[2] = {1, 2}; namespace n { static const __device__ T b = 1; }
        __device__ const float c{1}; __constant__ int read; __device__ const int* d = nullptr;
        __device__ List<const int> e; __device__ int f; const int g = 1;
        void host() { cudaMemcpyFromSymbol(&x, read, 4); }
        __global__ void k(float* y) { *y = a[0] * n::b * c * f; }
    """
    arguments = "/project/a.cu", {"/project/a.cu": text}, command("/project/a.cu")
    assert constants(*arguments) == {"a", "b", "c"}
    arguments[1]["/project/a.cu"] += "struct T { mutable int m; };"
    assert constants(*arguments) == set()


CERTAIN = {
    "a macro's text": "#define F __device__ int f() { return 1; }\nF",
    "a counter of the host": "__device__ int f() { return 1; }\nint x = __COUNTER__;",
    "a macro of a kernel": "#define N 1\n__global__ void f(int* x) { *x = N; }",
    "a condition within a kernel": "__global__ void f(int* x) {\n#if 1 == 1\n*x = 3;\n#endif\n}",
    "an assembler's text": '__device__ void f() { asm volatile("mov.u32 %0, 1;" ::: "memory"); }',
    "text that is left out": "#if 0\n it doesn't matter\n#endif\n__device__ int f() { return 1; }",
    "a constant": "__device__ int f() { static constexpr int x = 1; return x; }",
    "shared memory": "__device__ int f() { static __shared__ int x[1]; return x[0]; }",
    "a member": "struct A : B { public: __device__ int f() const { return 1; } int x; };",
    "a constructor": "struct A { __device__ A() { x = 1; } int x; };",
    "a second public": "class A { int x; public: __global__ friend void f(int) { 1; } };",
    "C linkage": 'extern "C" { __global__ void f(float* x) { *x = 1; } }',
    "defaults": "template <class T = A<B>, int n = 3> __device__ T f(T x = {}, int y = 4) { return 1; }",
    "a call operator": "struct F { template <class T> __device__ T operator()(T x) const { return 1; } };",
    "a specialization": "template <> __device__ int f<int>(int x) { return 1; }",
    "braces in texts": "__device__ void f() { printf(\"}\"); char c = '{'; int x = 1; /* } */ }",
    "indented directives": (
        "  #define A 3\n__device__ int f() {\n    #pragma unroll\n    for (;;) {}\n  return 1;\n}"
    ),
    "an unrolled loop": '__device__ int f() { _Pragma("unroll 4") for (;;) {} return 1; }',
    "separators": "__device__ int f() { return 1'000; }",
    "after an array": "int a[] = {0, 0};\n__device__ int f() { return 1; }",
    "an attribute": "__device__ int f() { [[maybe_unused]] int x = 1; return x; }",
    "a member beside one of both": "struct F { __host__ __device__ int operator()(int x) { return x; } };\nstruct G { __device__ int operator()(int x) { return 1; } };",
    "after a host function": "void g() { if (x) { y(); } }\n__device__ int f() { return 1; }",
    "named like a function of the C++ library": "void g() { x = std::max(std::min(a, b), 0); }\n__device__ int min(int a, int b) { return 1; }",
    "named like a member": "void g() { x.size(); y->size(); }\n__device__ int size() { return 1; }",
}  # fmt: skip


@pytest.mark.parametrize("text", CERTAIN.values(), ids=CERTAIN)
def test_certain_edits_count_as_device_code(text):
    assert is_of_device({"a.cu": text}, {"a.cu": text.replace("1", "2")})


HOST, DEVICE = "int g(int a, int b) { return a @b; }", "__device__ void f() { @ }\nint x;"
# A macro may make a text of its argument, as assert does.
OF_A_MACRO = "#define CHECK(x) if (x) throw #x\nint g() { @ }"


@pytest.mark.parametrize(
    ("text", "before", "after", "of_device"),
    [
        (HOST, "- -", "--", False),
        (HOST, "+ +", "++", False),
        (HOST, "& &", "&&", False),
        (OF_A_MACRO, "CHECK(f(0,1));", "CHECK(f(0, 1));", False),
        (OF_A_MACRO, "CHECK(f(0,1));", "  CHECK(f(0,1));", True),
        (DEVICE, "", "g();", True),
        (DEVICE, " g(); ", "g();", True),
        (DEVICE, "\n  // later\n", "\n  // later\n  g();\n", True),
        (DEVICE, "\n#if A\n#endif\n", "\n  g();\n#if A\n#endif\n  g();\n", True),
    ],
)
def test_space_within_a_body_for_the_device_does_not_count(text, before, after, of_device):
    texts = [{"a.cu": text.replace("@", part)} for part in (before, after)]
    assert is_of_device(*texts) == of_device


def test_a_source_that_is_not_understood_makes_every_edit_doubtful():
    texts = {"a.cu": '#include "b.h"\n__device__ int f() { return 1; }', "b.h": "{"}
    assert not is_of_device(texts, {**texts, "a.cu": texts["a.cu"].replace("1", "2")})


@pytest.fixture(scope="module")
def lltm():
    """Returns the host's pass of lltm."""
    texts = {f"/project/{name}": text for name, text in sources("lltm").items()}
    return preprocess("/project/kernels/lltm.cu", texts, command("/project/kernels/lltm.cu"), False)


@settings(max_examples=60, deadline=None)
@given(
    place=st.integers(0, 10_000),
    length=st.integers(0, 3),
    new=st.lists(
        st.sampled_from(["{", "}", "(", ")", ";", "x", "1", '"', "'", "static ", "__host__ ", "="]),
        max_size=3,
    ),
)
@pytest.mark.slow
def test_a_random_edit_outside_of_device_code_is_seen(lltm, place, length, new):
    """A token that is removed or inserted anywhere but in a device body counts as host code."""
    before = HostCode(lltm.text)
    tokens = [token for token in tokens_of(lltm.text) if token.kind != "line"]
    first = tokens[place % len(tokens)]
    last = tokens[min(place % len(tokens) + length, len(tokens) - 1)]
    changed = lltm.text[: first.start] + "".join(new) + lltm.text[last.start :]
    bodies = [
        (before.all_tokens[each.body[0]].start, before.all_tokens[each.body[1]].end)
        for each in before.of_device
    ]
    # A } in the new text may end the body.
    is_inside = any(a < first.start < b and (last.start < b or "}" in new) for a, b in bodies)
    if is_inside or [t.text for t in tokens_of(changed)] == [t.text for t in tokens_of(lltm.text)]:
        return
    try:
        after = list(HostCode(changed).tokens())
    except NotUnderstood:
        return
    assert after != list(before.tokens())


@pytest.mark.slow
@pytest.mark.parametrize("op", sorted({edit[0] for edit in OF_DEVICE}))
def test_cudafe_writes_the_same_host_code(op, tmp_path):
    texts = sources(op)
    before = cudafe_code(op, texts, tmp_path)
    for edit in OF_DEVICE:
        if edit[0] == op:
            assert cudafe_code(op, edited(texts, *edit[1:]), tmp_path) == before, edit


def cudafe_code(op, texts, folder):
    """Returns the host part of a source as cudafe++ writes it, without line numbers."""
    write_files(folder, texts)
    flags = ["-std=c++17", "-arch=sm_80", "-Xcicc=-O0", "--keep", "-cuda"]
    command = [toolchain.nvcc_path(), *flags, f"-I{folder}", folder / "kernels" / f"{op}.cu"]
    # An edit may be an error of device code, which is compiled once the host part is written.
    subprocess.run(command, capture_output=True, cwd=folder)
    written = folder / f"{op}.cudafe1.cpp"
    text, found = written.read_text(), 1
    while found:  # a lambda's is within that of its kernel
        text, found = re.subn(r"(?ms)^#if 0$((?!^#if 0$).)*?^#endif$", "", text)
    written.unlink()
    text = re.sub(r"(?m)^#(?: \d+.*|line .*)$\n", "", text)
    # Names that contain the source's hash vary.
    return re.sub(r"_cu_[0-9a-f]{8}_\d+", "", " ".join(text.split()))
