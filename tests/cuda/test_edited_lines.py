"""An edit of lines without macros is preprocessed without g++; g++ is the reference."""

import pytest

from _jit_loader.cuda import preprocess as this
from _jit_loader.cuda.preprocess import preprocess
from tests.support.extension import fork

pytestmark = pytest.mark.nvcc

TEXT = """\
#include <cuda_fp16.h>
#include "part.h"
#define TWICE(x) ((x) + (x))
#define KERNEL __global__
#if 0
int not_compiled = 5;
#endif
/* A comment's line:
int in_comment = 6;
// more
*/
#define $A 1
#include "twice.h"
#include "./twice.h"
const char* raw = "a";
KERNEL void f(float* x) {
  __shared__ float s[32];
  x[0] = 1; // one
  x[1] = TWICE(
      2);
  s[3] = 4;

  int after_two =
      TWICE
      + 1;
}
int line = __LINE__;
"""
FILES = {
    "/project/a.cu": TEXT,
    "/project/part.h": "#pragma once\n__device__ int part() {\n  return 3;\n}\n",
    "/project/twice.h": "static int twice = 7;\n",
}
COMMAND = ["nvcc", "-std=c++17", "-gencode=arch=compute_80,code=sm_80", "-I/project"]
COMMAND += ["-DFLAG=1", "-c", "/project/a.cu", "-o", "a.o"]
KNOWN = {
    "a number": ("x[0] = 1;", "x[0] = 10;"),
    "a comment": ("// one", "// TWICE(another)"),
    "more code": ("s[3] = 4;", "for (int i = 0; i < 4; i++) s[i] = x[i] * part();"),
    "a header": ("return 3;", "return 30;"),
    "shared memory": ("__shared__ float s[32];", "__shared__ float s[64];"),
}
OF_GCC = {
    "a macro": ("x[0] = 1;", "x[0] = TWICE(1);"),
    "a macro of the system": ("s[3] = 4;", "s[3] = CUDART_VERSION;"),
    "a macro of a flag": ("x[0] = 1;", "x[0] = FLAG;"),
    "a macro's arguments": ("      2);", "      3);"),
    "arguments of the line before": ("      + 1;", "      (1);"),
    "a line more": ("x[0] = 1;", "x[0] = 1;\n  x[2] = 2;"),
    "not compiled": ("not_compiled = 5;", "not_compiled = 50;"),
    "in a comment": ("in_comment = 6;", "in_comment = 60;"),
    "a comment's end": ("int in_comment = 6;", "*/ int in_comment = 6;"),
    "a comment's end in a comment": ("// more", "// more */ int x;"),
    "another macro's name": ("x[0] = 1;", "x[0] = $A;"),
    "a file that is included twice": ("twice = 7;", "twice = 70;"),
    "an emptied line": ("  x[0] = 1; // one", ""),
    "a literal": ('"a"', '"b"'),
    "a directive": ("#define TWICE(x) ((x) + (x))", "#define TWICE(x) (2 * (x))"),
    "a line that goes on": ("// one", "// one \\"),
    "an empty line": ("s[3] = 4;\n\n", "s[3] = 4;\n  x[4] = 5;\n"),
}


def text_of(old="", new="", architecture="80"):
    assert not old or "".join(FILES.values()).count(old) == 1
    texts = {path: text.replace(old, new) for path, text in FILES.items()}
    return preprocess("/project/a.cu", texts, COMMAND, architecture).text


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("cache"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JIT_LOADER_CACHE", folder)
        for architecture in ("80", None):
            text_of(architecture=architecture)
        yield folder


@pytest.mark.parametrize("edit", [*KNOWN, *OF_GCC])
@pytest.mark.parametrize("architecture", ["80", None])
def test_the_text_is_that_of_gcc(cache, monkeypatch, edit, architecture):
    runs, run = [], this.run
    monkeypatch.setattr(this, "run", lambda words: (runs.append(words), run(words))[1])
    this._preprocess.cache_clear()
    text_of(architecture=architecture)  # the earlier version
    first = len(runs)
    found = text_of(*(KNOWN | OF_GCC)[edit], architecture)
    assert (len(runs) == first) == (edit in KNOWN)
    monkeypatch.setattr(this, "_last", lambda *_: f"{cache}/unknown.json")
    this._preprocess.cache_clear()
    expected = text_of(*(KNOWN | OF_GCC)[edit], architecture)
    assert list(map(str.split, found.split("\n"))) == list(map(str.split, expected.split("\n")))


def test_a_new_process_knows_the_build_and_an_edit_with_more_lines(cache, monkeypatch):
    text_of(), text_of(*OF_GCC["a line more"])
    this._preprocess.cache_clear()
    monkeypatch.setattr(this, "run", None)
    text_of(), text_of(*OF_GCC["a line more"])


def test_another_process_begins_to_read_the_headers(tmp_path, monkeypatch):
    """Such as a rank of torchrun: it must not remove what this process has written."""
    monkeypatch.setenv("JIT_LOADER_CACHE", str(tmp_path))
    runs, run = [], this.run

    def run_beside_another(words):
        runs.append(words)
        if len(runs) == 3:  # after nvcc's list of commands, and the headers
            other = fork.Process(target=text_of)
            other.start()
            other.join()
        elif len(runs) == 5:
            raise SystemExit  # the other process, before it writes
        return run(words)

    this._preprocess.cache_clear()
    monkeypatch.setattr(this, "run", run_beside_another)
    assert "x[0] = 1;" in text_of()
