"""Each tool's first error is shown as file:line with its source line and advice."""

import re

import pytest

import jit_loader
from _jit_loader.report.errors import compile_error
from tests.support.extension import program


def _message(tiny, output):
    """Returns the lines of the error for an output of the tools; {} is the project's folder."""
    project = str(tiny.folder)
    lines = output.strip("\n").replace("{}", project).splitlines()
    error = compile_error("tiny", "tiny", lines, "/failed", project, "ninja", tiny.sources)
    return str(error).splitlines()


def _fails(tiny, **options):
    return str(tiny.error(**options)).splitlines()


# Output of clang 20 and nvcc 13.2.
CLANG = """
{}/other.cpp:3:40: error: type 'int' cannot be used prior to '::' because it has no members
    2 | template <class T> struct A { typename T::nothing x; };
      |                                        ^
{}/other.cpp:3:8: note: in instantiation of template class 'A<int>' requested here
    3 | A<int> a;
      |        ^
{}/other.cpp:4:21: error: expected expression
    4 | int f() { return 1 +; }
      |                     ^
2 errors generated.
"""
NVCC = """
{}/other.cpp(3): error #20: identifier "undefined_thing" is undefined
    *p = undefined_thing;
         ^
"""
NVCC_HOST = "{}/other.cpp:3:10: fatal error: nothere.h: No such file or directory\n"
PTXAS = """
ptxas /tmp/tmpxft_0000101e_00000000-6_other.ptx, line 27; error   : Unknown modifier '.bar'
ptxas /tmp/tmpxft_0000101e_00000000-6_other.ptx, line 27; error   : Not a name of any known \
instruction: 'foo'
ptxas fatal   : Ptx assembly aborted due to errors
"""
PTXAS_SHARED = """
ptxas error   : Entry function '_Z3bigILi60000EEvPf' uses too much shared data (0x3a980 bytes)
"""
BIG = "Entry function 'void big<60000>(float*)'"
PTXAS_EXTERN = "ptxas fatal   : Unresolved extern function '_Z6helperf'\n"
LD = """
/usr/bin/ld: other.o: in function `value':
other.cpp:(.text+0x1c): undefined reference to `void ns::scale<float>(float*, float const*, long)'
collect2: error: ld returned 1 exit status
"""
LLD = """
ld.lld: error: undefined symbol: scale(float*, float const*, long)
>>> referenced by other.cpp
>>>               other.o:(value)
"""


# {id: (output, line of the source, expected message)}
OUTPUTS = {
    "clang": (CLANG, "  bad", "type 'int' cannot be used prior"),
    "nvcc": (NVCC, "  *p = undefined_thing;", 'identifier "undefined_thing" is undefined'),
    "nvcc-host": (NVCC_HOST, '#include "nothere.h"', "nothere.h: No such file or directory"),
    "ptxas": (PTXAS, '  asm("foo.bar.f32 %0;");', "Unknown modifier '.bar'"),
    "ptxas-shared": (PTXAS_SHARED, "__global__ void big(T*)", f"{BIG} uses too much shared data"),
    "ptxas-extern": (PTXAS_EXTERN, "  helper(1.0f);", "Unresolved extern function 'helper(float)'"),
    "ld": (LD, "  ns::scale(y, x, 1);", "undefined reference to `void ns::scale<float>(fl"),
    "lld": (LLD, "  scale(y, x, 1);", "undefined symbol: scale"),
}


@pytest.mark.parametrize(("output", "line", "expected"), OUTPUTS.values(), ids=OUTPUTS)
def test_message_names_the_line_of_the_source(tiny, output, line, expected):
    tiny.write(
        "other.cpp", f'// foo.bar\nauto names = "scale helper big undefined_thing";\n{line}\n'
    )
    first, second, third, *_ = _message(tiny, output)
    assert first.startswith(f"tiny: other.cpp:3: error: {expected}")
    assert second == f"  3 | {line}"
    assert (third == "  and 1 more error") == (output in (CLANG, PTXAS))


def test_error_in_an_external_header_names_the_users_line(tiny, tmp_path):
    header = tmp_path / "library" / "vector.h"
    header.parent.mkdir()
    header.write_text("template <class T> struct vector { typename T::type x; };\n")
    tiny.write("value.h", f'#include "{header}"\nvector<int> v;\n#define VALUE 1\n')
    first, second, third, fourth, *_ = _fails(tiny)
    assert first.startswith(f"tiny: {header}:1: error: ")
    assert second.startswith("  1 | template <class T> struct vector")
    assert third == "  required from value.h:2"
    assert fourth == "  2 | vector<int> v;"


def test_undefined_virtual_function_is_named(tiny):
    made = "[] { struct Local { virtual long f(); }; return new Local; }()"
    tiny.write("other.cpp", f'extern "C" long other(void) {{ return long({made}); }}\n')
    message = "\n".join(_fails(tiny))
    assert "it is declared, but not defined" in message
    assert "compiled without -fPIC" not in message


def test_error_in_a_flag_names_the_command_line(tiny):
    """The line of the warning must not be shown."""
    tiny.write(
        "other.cpp",
        '#define WARNING _Pragma("GCC warning \\"w\\"")\nWARNING\n'
        'extern "C" long other(void) { return NUMBER; }\n',
    )
    flags = {"-DNUMBER=nope": "error: .*nope", "-imacros missing.h": "fatal error: missing.h: No"}
    for flag, error in flags.items():
        first, *_ = _fails(tiny, extra_cflags=flag.split())
        assert re.match(f"tiny: <command-line>: {error}", first)


def test_unknown_instruction_is_shown_with_its_line(tiny):
    tiny.write("other.cpp", 'extern "C" long other(void) {\n  asm("frobnicate");\n  return 1;\n}\n')
    first, second, *_ = _fails(tiny)
    assert re.match(r"tiny: other\.cpp:2: error: .*frobnicate", first)
    assert second == '  2 |   asm("frobnicate");'


def test_warning_that_is_not_utf_8_is_printed(tiny, capsys):
    """PyTorch prints it too. The source line in the warning has a comment in Latin-1."""
    path = tiny.folder / "other.cpp"
    path.write_bytes(b'extern "C" long other(void) { int unused; /* caf\xe9 */ return 1; }\n')
    assert tiny.value(extra_cflags=["-Wall"], verbose=True) == 2
    assert "caf\N{REPLACEMENT CHARACTER}" in capsys.readouterr().out


def test_full_disk_is_reported_before_the_errors_that_follow_from_it():
    output = [
        "/tmp/cc.s: Assembler messages:",
        "/tmp/cc.s: Fatal error: can't write 12 bytes to other.o: 'Disk quota exceeded'",
        "/tmp/cc.s: Fatal error: other.o: No such file or directory",
    ]
    message = str(compile_error("tiny", "tiny", output, "/failed", "/project", "ninja", []))
    assert message.startswith(f"tiny: {output[1]}\n")
    assert "TMPDIR" in message


# A compiler of a language without a locale on this machine.
GERMAN = """\
#!/bin/sh
[ "$LC_MESSAGES" = C ] && [ "$LC_ALL${LC_CTYPE:-$LANG}" = de_DE.UTF-8 ] && exec g++ "$@"
g++ "$@" 2>"$0.said"; code=$?
sed -e "s/error:/Fehler:/; s/cannot find/kann nicht gefunden werden:/" "$0.said" >&2
exit $code
"""


def test_errors_of_a_compiler_of_another_language_are_recognised(tiny, monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", str(program(tmp_path / "german", GERMAN)))
    monkeypatch.delenv("LC_CTYPE", raising=False)
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert "add its folder with -L" in "\n".join(_fails(tiny, extra_ldflags=["-lnowhere"]))
    tiny.write("other.cpp", '\nextern "C" long other(void) { return 1 +; }\n')
    assert _fails(tiny)[0].startswith("tiny: other.cpp:2: error: expected")


PYBIND = """\
#define PYBIND11_MODULE(name, m) void bind(Module m)
struct Module { template <class F> void def(const char*, F, const char*); };
namespace torch { template <class F> F wrap_pybind_function(F f) { return f; } }
"""


@pytest.mark.parametrize("wrapped", [True, False])
def test_overloaded_function_that_load_inline_cannot_bind_gets_advice(cache, wrapped):
    options = {"no_implicit_headers": True, "with_pytorch_error_handling": wrapped}
    texts = [PYBIND, "int scale(int x);", "int scale(float x);"]
    with pytest.raises(jit_loader.CompileError, match=r"functions= names scale, .*overload_cast"):
        jit_loader.load_inline("inline", texts, functions="scale", **options)


# Errors that are not in docs/troubleshooting.md or that need nvcc, and a part of the advice.
ADVICE = {
    "nvcc fatal   : Unsupported gpu architecture 'compute_120'": "set TORCH_CUDA_ARCH_LIST",
    "h.h:1:2: error: #error -- unsupported GNU version! gcc versions later": "set CC and CXX",
    "error: cannot be loaded: a.so: undefined symbol: _ZTI1A": "declared, but not defined",
    "ptxas fatal   : Unresolved extern function '_Z1fi'": "define it in a header",
    "ld: libx.a(x.o): relocation R_X86_64_32 against `.rodata'; recompile with -fPIC": "compile it",
    "nvcc error   : 'cicc' died due to signal 9 (Kill signal)": "set MAX_JOBS=1",
}


@pytest.mark.parametrize("line", ADVICE)
def test_advice_names_what_to_do(tiny, line):
    advice = [text for text in _message(tiny, line) if ADVICE[line] in text and text[:2] == "  "]
    assert len(advice) == 1


def test_function_defined_twice_gets_advice(tiny):
    tiny.write("value.h", "#define VALUE 1\nint twice() { return 1; }\n")
    tiny.write("other.cpp", '#include "value.h"\nextern "C" long other(void) { return 100; }\n')
    first, second, third, *_ = _fails(tiny)
    assert first == "tiny: value.h:2: error: multiple definition of `twice()'"
    assert second == "  2 | int twice() { return 1; }"
    assert "must be inline" in third


# With the real nvcc, if it is installed.


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param("*p = nothing;", 'identifier "nothing" is undef', marks=pytest.mark.slow),
        ('asm("foo.bar.f32 %0;" : "=f"(*p));', "Unknown modifier '.bar'"),
    ],
    ids=["cudafe++", "ptxas"],
)
def test_real_message_of_nvcc_names_the_line(tiny, monkeypatch, body, expected):
    text = f"__global__ void k(float* p) {{ {body} }}"
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0")
    kernel = tiny.write("a b/k.cu", text + "\n")
    with pytest.raises(jit_loader.CompileError) as raised:
        jit_loader.load("tiny", [*tiny.sources, str(kernel)])
    first, second, *_ = str(raised.value).splitlines()
    assert first.startswith(f"tiny: a b/k.cu:1: error: {expected}")
    assert second == f"  1 | {text}"
