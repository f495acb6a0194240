"""Tests details of PyTorch's load and load_inline on which programs rely."""

import importlib
import os
import pickle
import sys
from pathlib import Path

import pytest

import jit_loader
from tests.support.extension import MODULE, PYTHON, binding, inline_module


def test_spaces_around_flags_and_include_paths_are_removed(tiny):
    tiny.write("include/deep.h", "#define VALUE FIRST + SECOND\n")
    tiny.write("value.h", "#include <deep.h>\n")
    flags = {"extra_cflags": ["-DFIRST=1\n\n", " -O0 -DSECOND=2 "], "extra_ldflags": [" -lm\n"]}
    assert tiny.value(extra_include_paths=[f" {tiny.folder}/include\n"], **flags) == 103


MULTI_PHASE = (("-1, methods", "0, methods"), ("PyModule_Create(", "PyModuleDef_Init("))


@pytest.mark.parametrize("replacements", [(), MULTI_PHASE], ids=["single-phase", "multi-phase"])
def test_module_can_be_imported_and_its_functions_pickled(tiny, monkeypatch, replacements):
    """Python adds a module with single-phase initialization to sys.modules, pybind11 3 has none."""
    text = MODULE.replace(PYTHON, "#include <Python.h>\n")
    for old, new in replacements:
        text = text.replace(old, new)
    tiny.write("module.cpp", text)
    monkeypatch.delitem(sys.modules, "tiny", raising=False)
    first = tiny.load()
    tiny.write("value.h", "#define VALUE 2\n")
    assert tiny.load() is importlib.import_module("tiny")
    tiny.write("value.h", "#define VALUE 1\n")
    assert tiny.load() is first
    assert importlib.import_module("tiny") is first
    assert pickle.loads(pickle.dumps(first.value))() == 101
    assert not [name for name in sys.modules if name.startswith("jit_loader_builds.")]


def test_module_does_not_replace_another_module_of_its_name(tiny, monkeypatch):
    other = type(os)("tiny")
    monkeypatch.setitem(sys.modules, "tiny", other)
    assert tiny.value() == 101
    assert sys.modules["tiny"] is other


@pytest.mark.parametrize("use_pch", [False, True])
def test_flags_may_have_quotes_and_need_a_shell(cache, use_pch):
    options = {"extra_cflags": ['-DNAME="a b;c"', "`echo -O1`"], "use_pch": use_pch}
    assert inline_module(5, **options).value() == 5


WHERE = """\
#include <dlfcn.h>
#include <unistd.h>
static long is_there() {
  Dl_info info;
  return dladdr((void*)&is_there, &info) && access(info.dli_fname, R_OK) == 0;
}
"""


def test_path_that_a_library_has_in_the_process_exists(tiny, in_process):
    """gdb, sanitizers, $ORIGIN and extensions that look for files beside themselves use it."""
    source = tiny.write("here.cpp", binding("here", WHERE, value="is_there()"))
    assert jit_loader.load("here", source).value() == 1, "in the process that compiled it"
    assert in_process(lambda: jit_loader.load("here", source).value()) == 1


def test_coverage_is_written_next_to_the_library(tiny):
    dump = 'extern "C" void __gcov_dump();\nstatic long dump() { return __gcov_dump(), 1; }\n'
    source = tiny.write("covered.cpp", binding("covered", dump, value="dump()"))
    flags = {"extra_cflags": ["--coverage"], "extra_ldflags": ["--coverage"]}
    module = jit_loader.load("covered", source, **flags)
    assert module.value() == 1
    assert list(Path(module.__file__).parent.glob("*.gcda"))
