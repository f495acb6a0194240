"""With its headers precompiled, the host code of a .cu file gives the same object and messages.

PyTorch's headers take too long here: a small header of the system takes their place.
"""

import os
from pathlib import Path
from unittest.mock import Mock

import pytest

import jit_loader
from _jit_loader.build import precompiled
from _jit_loader.cache import cache_folder, headers
from _jit_loader.cuda import halves
from _jit_loader.key import toolchain
from tests.support.extension import write

pytestmark = pytest.mark.nvcc

HEADER = """\
#pragma once
namespace { int of_each_file(int n) { static int calls; return n + ++calls; } }
namespace parts {
namespace { struct Part { virtual ~Part() {} virtual int size() { return of_each_file(1); } }; }
template <class T> struct Pair { T a, b; T sum() const { return a + b; } };
}
"""
SOURCE = """\
#include <large.h>
#include "own.h"
namespace { __global__ void scale(float* x) { x[threadIdx.x] *= OWN; } }
static int unused() { return 0; }
int NAME(float* x) {
  typedef int Unused;
  parts::Part part;
  scale<<<1, 32>>>(x);
  return part.size() + parts::Pair<int>{1, 2}.sum();
}
"""
FLAGS = ["-Xcompiler=-Wall,-Winvalid-pch", "-arch=sm_90", "-isystem", "include"]


@pytest.fixture
def compile(tmp_path, monkeypatch, capfdbinary):
    """Returns a function that compiles a source: (exit code, the object, what was printed)."""
    monkeypatch.setattr(halves, "LEAST_BYTES", 0)
    monkeypatch.setenv("JIT_LOADER_CACHE", str(tmp_path / "cache"))
    os.makedirs(cache_folder(), mode=0o700)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "large.h").write_text(HEADER)
    (tmp_path / "own.h").write_text("#define OWN 2\n")

    def compile(name, *flags, text=SOURCE, with_headers=False):
        (tmp_path / f"{name}.cu").write_text(text.replace("NAME", name))
        options = [f"--headers={os.path.join(cache_folder(), headers.PRECOMPILED)}", "--want"]
        nvcc = [toolchain.nvcc_path(), *FLAGS, *flags, "-c", f"{name}.cu", "-o", "k.o"]
        code = halves.main([*options, *nvcc] if with_headers else nvcc)
        built = (tmp_path / "k.o").read_bytes() if code == 0 else None
        (tmp_path / "k.o").unlink(missing_ok=True)
        return code, built, b"".join(capfdbinary.readouterr())

    return compile


def requested():
    """Returns the requests' folders of the headers that are requested."""
    folder = Path(cache_folder(), headers.PRECOMPILED)
    return [path.parent for path in folder.glob("*/request.json")]


def make(compile, *flags, **text):
    """Makes the header that a compilation requests; returns its folder."""
    assert compile("first", *flags, with_headers=True, **text)[0] == 0
    (request_folder,) = requested()
    precompiled.make_requested()
    return request_folder / "header"


@pytest.fixture
def header(compile):
    """Makes the header of the source first; returns its folder."""
    return make(compile)


@pytest.fixture
def compared(compile, header):
    """Returns a function that compiles with the header and without it, with the same result.

    It returns whether the header was used, the exit code and what was printed.
    """

    def compared(*flags, name="first", text=SOURCE):
        os.utime(header, (1, 1))
        code, built, said = compile(name, *flags, text=text, with_headers=True)
        used = header.stat().st_mtime > 1
        assert (code, built, said) == compile(name, *flags, text=text)
        return used, code, said

    return compared


def test_object_and_warnings_are_the_same_in_each_file(compared, tmp_path):
    for name, flags in ("first", []), ("second_of_another_length", ["-Iown", "-DMACRO=1"]):
        used, code, said = compared(*flags, name=name)
        assert (used, code, requested()) == (True, 0, [])
        assert b"unused" in said, "of the source"
        assert b"Unused" not in said, "cudafe++ turns this warning off"
    # An edit of the user's header needs no other precompiled header.
    (tmp_path / "own.h").write_text("#define OWN 3\ninline int g() { return 1; }\n")
    assert compared()[:2] == (True, 0)
    assert not requested()


@pytest.mark.slow
def test_errors_are_the_same(compared, header):
    for text in ("Pair<int>{1, 2}", "Pair<int>{1, g()}"), ("return 0", 'asm("%9"::); return 0'):
        _, code, said = compared(text=SOURCE.replace(*text))
        assert code != 0
        assert b"error" in said
    assert header.exists()


@pytest.mark.slow
def test_another_header_or_flag_needs_another_precompiled_header(compared, tmp_path):
    assert not compared("-Xcompiler=-Wextra")[0]
    assert requested()
    precompiled.make_requested()
    (tmp_path / "include" / "large.h").write_text(f"{HEADER}inline int more();\n")
    assert not compared()[0]
    assert requested()


@pytest.mark.parametrize("damaged", ["header.h.gch", "header.h", "header.json"])
def test_damaged_header_is_not_used_and_is_requested_again(compared, header, damaged):
    text = (header / damaged).read_bytes()
    changed = text.replace(b"++calls", b"--calls") if damaged == "header.h" else text[:9]
    (header / damaged).write_bytes(changed)
    assert not compared()[0]
    assert requested()


@pytest.mark.slow
def test_header_is_not_used_if_the_object_would_differ(compared):
    assert not compared("-g")[0], "debugging information"
    text = SOURCE.replace("unused", "my_jit_loader_file_name")
    assert not compared(text=text)[0], "a name like the id for all files"
    assert not requested()


@pytest.mark.parametrize("end", ["static int of_the_header;", "namespace open {"])
def test_header_that_cannot_be_made_is_requested_once(compile, tmp_path, end):
    (tmp_path / "include" / "large.h").write_text(f"{HEADER}{end}\n")
    text = SOURCE + ("}\n" if "open" in end else "")
    flags = ["-Xcompiler=-Wsystem-headers,-Wunused"]
    make(compile, *flags, text=text)
    expected = compile("first", *flags, text=text)
    assert compile("first", *flags, text=text, with_headers=True) == expected
    assert not requested()


def test_build_lets_the_header_be_made_after_it(tiny, tmp_path, monkeypatch):
    monkeypatch.delenv("JIT_LOADER_PCH")
    # 4000 names of 1000 letters: as large as PyTorch's headers are to host_header.py.
    large = "".join(f"int {'value' * 200}{i}(int a);\n" for i in range(4000))
    include = write(tmp_path / "include" / "large.h", large).parent
    source = tiny.folder / "k.cu"

    def load(number):
        write(source, f'#include <large.h>\nextern "C" long other(void) {{ return {number}; }}\n')
        sources, flags = [tiny.sources[0], str(source)], ["-isystem", str(include)]
        return jit_loader.load("tiny", sources, extra_cuda_cflags=flags).value()

    with monkeypatch.context() as patched:
        start = Mock()
        patched.setattr(precompiled, "call_in_background", start)
        patched.setattr(precompiled, "may_precompile", lambda: True)
        first = load(7)
    start.assert_called_once()
    (request_folder,) = requested()
    precompiled.make_requested()
    folder = request_folder / "header"
    assert str(folder) in headers.precompiled_headers()
    os.utime(folder, (1, 1))
    assert load(8) == first + 1
    assert folder.stat().st_mtime > 1, "the header was used"
