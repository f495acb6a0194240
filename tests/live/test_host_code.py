"""Tests which edits of CUDA sources affect device code only, on the ops and on small sources.

The reference is cudafe++, which splits a source: an edit that is classified as one of device code
must not change the text that cudafe++ writes for the host compiler.
"""

# ruff: noqa: E501

import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from _jit_loader.cuda.lexer import NotUnderstood, macros_in, scan, tokens_of
from _jit_loader.cuda.nvrtc import closure
from _jit_loader.key import toolchain
from _jit_loader.live.host_code import skeletons, traceable_macros
from _jit_loader.system import read_text
from tests.support.extension import write

ROOT = Path(__file__).resolve().parents[2]

ELEMENTWISE, REDUCTION = "kernels/shared/elementwise.cuh", "kernels/shared/reduction.cuh"
COMMON, HALF = "kernels/shared/common.cuh", "kernels/shared/half.h"
LLTM, TRILINEAR = "kernels/lltm.cu", "kernels/trilinear_interpolation.cu"

TRILINEAR_MATH = "kernels/trilinear_interpolation_math.h"

# (op, file, old text, new text)
OF_DEVICE = [
    ("add2", ELEMENTWISE, "if (begin + (count - 1)", "if (begin + (count - 1) * 2"),
    ("add2", ELEMENTWISE, "#pragma unroll\n  for (int v = 0", "#pragma unroll 4\n  for (int v = 0"),
    ("add2", ELEMENTWISE, "template <class Out>\nconstexpr", "template <class Out>   constexpr"),
    ("sum_single", REDUCTION, "  __shared__ Sum warps[", "  __shared__ Sum more[3], warps["),
    ("sum_single", REDUCTION, '"griddepcontrol.wait;"', '"griddepcontrol.wait; // {"'),
    ("two_norm", "kernels/two_norm.cu", "second[element] = -first", "second[element] = +first"),
    ("lltm", LLTM, "    columns.value[0] = widen(*from);", "    columns.value[0] = 0;"),
    ("lltm", LLTM, "  total[i] = narrow<T>(sum);", "  struct A { T x; } a{narrow<T>(sum)};\n  total[i] = a.x;"),
    ("lltm", LLTM, "  total[i] = narrow<T>(sum);", "  enum A { one = 1 };\n  total[i] = narrow<T>(sum * one);"),
    ("lltm", LLTM, "  total[i] = narrow<T>(sum);", "  total[i] = narrow<T>(sum + kVectorSize<Pair<char>>);"),
    ("lltm", LLTM, "  total[i] = narrow<T>(sum);", "  auto k = &step<char, true>;\n  total[i] = narrow<T>(sum + (k != nullptr));"),
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
    ("add2", ELEMENTWISE, "  uint4 bits;\n", "#define BITS 1\n  uint4 bits;\n"),
    ("add2", HALF, "__host__ __device__ inline", "__host__ __device__"),
    ("sum_single", REDUCTION, "#if __CUDA_ARCH__ >= 900\n  asm volatile(\"griddepcontrol.wait", "#if __CUDA_ARCH__ >= 800\n  asm volatile(\"griddepcontrol.wait"),
    ("lltm", LLTM, "  total[i] = narrow<T>(sum);", "  auto f = [&] { total[i] = narrow<T>(sum); };\n  f();"),
    ("add2", "kernels/add2_math.h", "    return a + b;", "    static T c = a;\n    return b;"),
    ("add2", "kernels/add2_math.h", "T operator()(T a, T b)", "T operator()(T b, T a)"),
    ("add2", HALF, " __attribute__((noipa))", ""),
    ("two_norm", "kernels/two_norm_math.h", "T{0} : grad)", "T{1} : grad)"),
]  # fmt: skip


def sources(op):
    """Returns {path in the project: text} of an op's .cu file and its headers."""
    path = str(ROOT / "kernels" / f"{op}.cu")
    found = closure(read_text(path), os.path.dirname(path), [str(ROOT)], [])
    return {os.path.relpath(p, ROOT): read_text(p) for p in [path, *found.files]}


def edited(texts, file, old, new):
    assert texts[file].count(old) >= 1, old
    return {**texts, file: texts[file].replace(old, new, 1)}


def is_of_device(before, after, host_words=None):
    try:
        return skeletons(before, [], host_words) == skeletons(after, [], host_words)
    except NotUnderstood:
        return False


@pytest.mark.parametrize(("op", "file", "old", "new"), OF_DEVICE)
def test_edits_of_device_code_are_recognized(op, file, old, new):
    texts = sources(op)
    assert is_of_device(texts, edited(texts, file, old, new))


FORMULAS = [
    ("add2", "kernels/add2_math.h", "return a + b;", "return a - b;"),
    ("add2", HALF, "const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16;", "const uint32_t sign = 0;"),
    ("lltm", "kernels/lltm_math.h", "x > T{0}, x, kernels", "x >= T{0}, x, kernels"),
    ("trilinear_interpolation", TRILINEAR_MATH, "return u * (v * w);", "return (u * v) * w;"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "file", "old", "new"), FORMULAS)
def test_edits_of_formulas_that_the_host_does_not_use_count_as_device_code(op, file, old, new):
    texts = sources(op)
    changed = edited(texts, file, old, new)
    assert is_of_device(texts, changed, host_words=["launch", "float"])
    assert not is_of_device(texts, changed), "it is not known if the host uses the function"
    names = ["operator", "narrow", "widen", "elu", "corner_weight"]
    assert not is_of_device(texts, changed, host_words=names), "the host uses the function"


@pytest.mark.parametrize(("op", "file", "old", "new"), OF_HOST_TOO)
def test_edits_that_can_reach_host_code_count_as_host_code(op, file, old, new):
    texts = sources(op)
    assert not is_of_device(texts, edited(texts, file, old, new), host_words=[])


MACRO = """\
#ifdef __CUDACC__
#define BOTH __host__ __device__ inline __attribute__((noipa))
#else
#define BOTH inline
#endif
"""


@pytest.mark.parametrize(
    "macro",
    [
        MACRO.replace("__attribute__((noipa))", ""),
        MACRO.replace("noipa", "noinline"),
        MACRO.replace("__CUDACC__", "__CUDA_ARCH__"),
        MACRO + "#undef BOTH\n#define BOTH __host__ __device__\n",
    ],
)
def test_edits_count_as_host_code_if_a_macro_hides_uses_by_the_host(macro):
    before, after = ({"a.cu": f"BOTH int f() {{ return {n}; }}"} for n in (1, 2))
    assert is_of_device({**before, "b.h": MACRO}, {**after, "b.h": MACRO}, host_words=[])
    assert not is_of_device({**before, "b.h": macro}, {**after, "b.h": macro}, host_words=[])


@pytest.mark.parametrize(
    "text",
    [
        "BOTH auto f() { return 1; }",
        "constexpr BOTH int f() { return 1; }",
        "struct A { int a; BOTH A(int x) : a(x) { a = 1; } };",
        "BOTH int f();\nBOTH int f() { return 1; }",
        "int f();\nBOTH int f() { return 1; }",
        "BOTH int f() { static int x = 1; return x; }",
        "BOTH int f() { return [] { return 1; }(); }",
        "#define MORE __host__\nMORE BOTH int f() { return 1; }",
        "BOTH int f() throw() { return 1; }",
        "BOTH int f(int (A::*p)(int) = &A::operator()) { return 1; }",
        "template <> BOTH int f<(a < 3)>(int x) { return 1; }",
    ],
)
def test_edits_of_doubtful_formulas_count_as_host_code(text):
    before, after = (MACRO + text, MACRO + text.replace("1", "2"))
    assert not is_of_device({"a.cu": before}, {"a.cu": after}, host_words=[])


# In each text, 1 becomes 2. Host code depends on the edited part, or may depend on it.
DOUBTS = {
    "a deduced type": "__device__ auto f() { return 1; }",
    "a constant expression": "__device__ constexpr int f() { return 1; }",
    "both": "__host__ __device__ int f() { return 1; }",
    "both, by a macro": "#define BOTH __host__\nBOTH __device__ int f() { return 1; }",
    "a member's default": "struct A { int x = 1; __device__ int f() { return x; } };",
    "a variable": "__device__ int x{1};",
    "a launch": "__global__ void g(); __device__ void f() { g<<<1, 1>>>(); }",
    "a static variable": "__device__ int f() { static int x = 1; return x; }",
    "a lambda for the host": "auto f = [] __device__ () { return 1; };",
    "an enumeration": "enum A { x = 1 };",
    "an expression in a template": "template <int n = sizeof(int[1])> __device__ void f() {}",
    "a condition with half a function": (
        "#ifdef A\n__device__ int f() {\n#else\nint f() {\n#endif\n  return 1;\n}\n"
    ),
    "a macro with a brace": "#define BEGIN {\n__device__ int f() BEGIN return 1; }",
    "a macro of an attribute": "#define __device__\n__device__ int f() { return 1; }",
    "a macro's text": "#define F __device__ int f() { return 1; }\nF",
    "lines": "__device__ int f() { return 1; }\nint line = __LINE__;",
    "a virtual function": "struct A { virtual __device__ int f() { return 1; } };",
    "a requirement": "template <class T> requires (sizeof(T) == 1) __device__ void f() {}",
    "an initializer that looks like a function": "struct A x = { [] __device__ (int y) { return 1; } };",
    "a raw text": 'const char* a = R"x(\n__device__ int f() { return 1; })x";',
    "a digraph": "__device__ int f() <% return 1; %>",
    "declared for both": "__host__ __device__ int f();\n__device__ int f() { return 1; }",
    "declared for the host": "int f();\n__device__ int f() { return 1; }",
    "a friend for both": "struct A { friend int f(int); };\n__device__ int f(int) { return 1; }",
    "a template for both": (
        "template <class T> __host__ __device__ T f(T);\n"
        "template <> __device__ int f<int>(int x) { return 1; }"
    ),
    "an operator for both": (
        "__host__ __device__ A operator+(A, A);\n__device__ A operator+(A, A) { return 1; }"
    ),
    "a specialization of an operator for both": (
        "template <class T> __host__ __device__ T operator+(T a, T b) { return a; }\n"
        "template <> __device__ A operator+<A>(A a, A b) { return 1; }"
    ),
    "an operator of another spelling": (
        "__host__ __device__ int operator not(A);\n__device__ int operator!(A) { return 1; }"
    ),
    "a name in two lines of a macro": (
        "#define DECLARE __host__ __device__ int f_\\\nlong()\n"
        "DECLARE;\n__device__ int f_long() { return 1; }"
    ),
    "a friend that is defined in its class": (
        "struct A { friend __device__ int f(A) { return 1; } };\n__host__ __device__ int f(A);"
    ),
    "declared in a function": (
        "int g() { __host__ __device__ int f(); return f(); }\n__device__ int f() { return 1; }"
    ),
    "declared by a macro in two lines that makes its name": (
        "#define DECLARE(part) __host__ __device__ int f_#\\\n#part()\n"
        "DECLARE(long);\n__device__ int f_long() { return 1; }"
    ),
    "a function that replaces one of CUDA's": (
        "__device__ double tgamma(double x) { return 1; }\ndouble g() { return std::tgamma(3); }"
    ),
    "used after dots": (
        "template <class... T> int g(T... x) { return h(x...f()); }\n__device__ int f() { return 1; }"
    ),
    "declared with brackets": ("__host__ __device__ int (f)();\n__device__ int f() { return 1; }"),
    "declared by its type": (
        "__host__ __device__ decltype(g) f;\n__device__ int f() { return 1; }"
    ),
    "an operator in a macro": (
        "#define DECLARE __host__ __device__ A operator+(A, A)\n"
        "DECLARE;\n__device__ A operator+(A, A) { return 1; }"
    ),
    "both, by an attribute": "__attribute__((host)) __device__ int f() { return 1; }",
    "both, by an attribute of C++": "__device__ [[gnu::host]] int f() { return 1; }",
    "a comment that ends with backslashes": (
        "// \\\\\n__device__ int g() {\nint f() { return 1; }\n// \\\\\n}\n"
    ),
    "an end of a comment in two lines": "/* a *\\\n/ int f() { return 1; } /* b */",
    "the time": "__device__ int f() { return 1; }\nconst char* time = __TIME__;",
    "an include in a declaration": '__host__\n#include "f.inc"\n__device__ int f() { return 1; }',
    "a counter": "#define ID() __COUNTER__\n__device__ int f() { return 1; }\nint x = ID();",
    "a pragma": '__device__ int f() { _Pragma("pack(1)") return 1; }\nstruct A { int x; };',
}


def test_a_name_in_a_flag_counts():
    text = "__host__ __device__ int NAME();\n__device__ int f() { return 1; }"
    before, after = ({"a.cu": text.replace("1", value)} for value in "12")
    flags = ["-DNAME=f"]
    assert skeletons(before, flags) != skeletons(after, flags)
    assert skeletons(before, []) == skeletons(after, [])


def test_declaration_in_another_file_counts():
    texts = {"a.cu": "__device__ int f() { return 1; }", "b.h": "__host__ __device__ int f();"}
    assert not is_of_device(texts, {**texts, "a.cu": texts["a.cu"].replace("1", "2")})


@pytest.mark.parametrize("text", DOUBTS.values(), ids=DOUBTS)
def test_edits_in_doubt_count_as_host_code(text):
    after = text.replace("1", "2\n" if "__LINE__" in text else "2")
    assert not is_of_device({"a.cu": text}, {"a.cu": after})


CERTAIN = {
    "a member": "struct A : B { public: __device__ int f() const { return 1; } int x; };",
    "a second public": "class A { int x; public: __global__ friend void f(int) { 1; } };",
    "C linkage": 'extern "C" { __global__ void f(float* x) { *x = 1; } }',
    "defaults": "template <class T = A<B>, int n = 3> __device__ T f(T x = {}, int y = 4) { return 1; }",
    "a call operator": "struct F { template <class T> __device__ T operator()(T x) const { return 1; } };",
    "a specialization": "template <> __device__ int f<int>(int x) { return 1; }",
    "braces in texts": "__device__ void f() { printf(\"}\"); char c = '{'; int x = 1; /* } */ }",
    "conditions": "__device__ int f() {\n#if A\n  if (x) { y(); }\n#else\n  z();\n#endif\n  return 1;\n}",
    "a comment": "int x; // 1\nint y; /* 1 */",
    "indented directives": (
        "  #define A 3\n__device__ int f() {\n    #pragma unroll\n    for (;;) {}\n  return 1;\n}"
    ),
    "an unrolled loop": '__device__ int f() { _Pragma("unroll 4") for (;;) {} return 1; }',
    "separators": "__device__ int f() { return 1'000; }",
    "an attribute": "__device__ int f() { [[maybe_unused]] int x = 1; return x; }",
    "an operator beside a formula": (
        "struct F { __host__ __device__ int operator()(int x) { return x; } };\n"
        "__device__ A operator+(A a, A b) { return 1; }"
    ),
    "a member beside a formula": (
        "struct F { __host__ __device__ int operator()(int x) { return x; } };\n"
        "struct G { __device__ int operator()(int x) { return 1; } };"
    ),
    "after a host function": "void g() { if (x) { y(); } }\n__device__ int f() { return 1; }",
    "named like a function of the C++ library": (
        "void g() { x = std::max(std::min(a, b), 0); }\n__device__ int min(int a, int b) { return 1; }"
    ),
    "named like a member": "void g() { x.size(); y->size(); }\n__device__ int size() { return 1; }",
    "after a macro that makes a text": (
        "#define CHECK(call) if (call) throw error(#call)\n"
        "void g() { CHECK(h()); }\n__device__ int f() { return 1; }"
    ),
    "after a macro with a character": "#define C '#'\n__device__ int f() { return 1; }",
    "after an array": "int a[] = {0, 0};\n__device__ int f() { return 1; }",
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


def test_a_header_that_is_not_understood_makes_every_edit_doubtful():
    """It may declare a function of another file as host code."""
    texts = {"a.cu": '#include "b.h"\n__device__ int f() { return 1; }', "b.h": "{"}
    with pytest.raises(NotUnderstood):
        skeletons(texts, [])


REAL = sources("lltm")
MACROS, TRACEABLE = macros_in(REAL.values()), traceable_macros(REAL.values())


@settings(max_examples=60, deadline=None)
@given(
    file=st.sampled_from(sorted(REAL)),
    place=st.integers(0, 10_000),
    length=st.integers(0, 3),
    new=st.lists(
        st.sampled_from(["{", "}", "(", ")", ";", "x", "1", '"', "'", "/*", "*/", "//", "#else\n"])
        | st.sampled_from(["#if 1\n", "#endif\n", "\n", "\\", "static ", "__host__ ", "<<<", "="]),
        max_size=3,
    ),
    words=st.sampled_from([None, ()]),
)
def test_a_random_edit_outside_of_device_code_is_seen(file, place, length, new, words):
    """A token that is removed or inserted anywhere but in a device body counts as host code."""
    text = REAL[file]
    tokens = tokens_of(text)
    index = place % len(tokens)
    start = tokens[index].start
    last = tokens[min(index + length, len(tokens) - 1)]
    changed = text[:start] + "".join(new) + text[last.start :]
    traceable = set() if words is None else TRACEABLE
    bodies = scan(text, MACROS, traceable).bodies
    inside = [b for b in bodies if b.kind in ("device", "both")]
    # A } in the new text may end the body.
    is_inside = any(b.start < start < b.end and (last.start < b.end or "}" in new) for b in inside)
    seen = not is_of_device(REAL, {**REAL, file: changed}, words)
    if not is_inside and [t.text for t in _tokens_or_none(changed)] != [t.text for t in tokens]:
        assert seen


def _tokens_or_none(text):
    try:
        return tokens_of(text)
    except ValueError:
        return ()


@pytest.mark.slow
@pytest.mark.nvcc
@pytest.mark.parametrize("op", sorted({edit[0] for edit in OF_DEVICE}))
def test_cudafe_writes_the_same_host_code(op, tmp_path):
    texts = sources(op)
    before = host_code(op, texts, tmp_path)
    for edit in OF_DEVICE:
        if edit[0] == op:
            assert host_code(op, edited(texts, *edit[1:]), tmp_path) == before, edit


def host_code(op, texts, folder):
    """Returns the host part of a source as cudafe++ writes it, without line numbers."""
    for name, text in texts.items():
        write(folder / name, text)
    flags = ["-std=c++17", "-arch=sm_80", "-Xcicc=-O0", "--keep", "-cuda"]
    command = [toolchain.nvcc_path(), *flags, f"-I{folder}", folder / "kernels" / f"{op}.cu"]
    # An edit may be an error of device code, which is compiled once the host part is written.
    subprocess.run(command, capture_output=True, cwd=folder)
    written = folder / f"{op}.cudafe1.cpp"
    text = re.sub(r"(?ms)^#if 0$.*?^#endif$", "", written.read_text())
    written.unlink()
    text = re.sub(r"(?m)^#(?: \d+.*|line .*)$\n", "", text)
    # Names that contain the source's hash vary.
    return re.sub(r"_cu_[0-9a-f]{8}_\d+", "", " ".join(text.split()))
