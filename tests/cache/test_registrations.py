"""Tests several versions of one name that register operators in one process."""

import pytest

# STABLE_TORCH_LIBRARY registers as TORCH_LIBRARY does, and compiles in 1 s instead of 8.
IN_A_PROCESS = """
import os
import sys
import jit_loader
SOURCE = '''\
#include <torch/csrc/stable/library.h>
namespace outer1 { namespace { %s } }
'''
def load(code, more="", name="operators", **options):
    with open("operators.cpp", "w") as file:
        file.write(SOURCE % code + more)
    options = {"is_python_module": False, **options}
    try:
        jit_loader.load(name, ["operators.cpp"], **options)
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
    else:
        print("compiled" if jit_loader.loaded(name).compiled else "a hit")
def library(namespace, *operators):
    return f"STABLE_TORCH_LIBRARY({namespace}, m) {body(*operators)}"
def fragment(namespace, *operators):
    return f"STABLE_TORCH_LIBRARY_FRAGMENT({namespace}, m) {body(*operators)}"
def body(*operators):
    return "{" + "".join(f'm.def("{operator}(int x) -> int");' for operator in operators) + "}"
"""
TWICE = "RestartNeeded: operators registers {}, which PyTorch accepts only once per process, and it"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("registrations")


@pytest.fixture
def run(folder, python):
    """Runs IN_A_PROCESS and a script in a new process; returns the printed lines.

    All tests share the cache, so that a version is compiled once.
    """

    def run_there(script):
        cache = str(folder / "cache")
        finished = python(
            "-c", IN_A_PROCESS + script, cwd=folder, check=True, JIT_LOADER_CACHE=cache
        )
        assert finished.stderr == ""
        return finished.stdout.splitlines()

    return run_there


TWO_VERSIONS = """
load(library("qta", "f"))
load(library("qtb", "f"))
import torch
assert torch.ops.qta.f and torch.ops.qtb.f
"""


@pytest.mark.slow
def test_versions_with_different_namespaces_load_and_hits_start_no_child(run):
    assert run(TWO_VERSIONS) == ["compiled", "compiled"]
    printed = run("sys.executable = os.devnull\n" + TWO_VERSIONS)
    assert printed == ["a hit", "a hit"]


@pytest.mark.slow
def test_namespace_that_is_registered_twice_is_refused(run):
    printed = run("""
load(library("qta", "f"))
for _ in range(2):
    load(library("qta", "g"))
""")
    namespace = TWICE.format("the namespace qta (TORCH_LIBRARY)")
    assert [line.startswith(namespace) for line in printed] == [False, True, True]
    assert run('load(library("qta", "g"))') == ["a hit"], "the refused build was published"


@pytest.mark.slow
def test_fragments_load_and_an_operator_that_is_registered_twice_is_refused(run):
    printed = run("""
load(fragment("qf", "f"))
load(fragment("qf", "g"))
load(fragment("qf", "f", "g", "h"))
load(library("qf", "i"))
""")
    assert printed[:2] + printed[3:] == ["compiled"] * 3
    assert printed[2].startswith(TWICE.format("the operator qf::f and the operator qf::g"))


@pytest.mark.slow
def test_version_without_registrations_starts_no_child(run):
    printed = run("""
load(library("qta", "f"))
sys.executable = os.devnull
load("int plain;")
""")
    assert printed[1] == "compiled"


@pytest.mark.slow
def test_stripped_libraries_are_refused_only_if_pytorch_refuses_them(run):
    """Their macros are unknown, so a child process opens each new version as a test."""
    script = """
load(fragment("qs", "f"), extra_ldflags=["-s"])
load(fragment("qs", "g"), extra_ldflags=["-s"])
load(library("qs", "h"), extra_ldflags=["-s"])
load(library("qs", "i"), extra_ldflags=["-s"])
"""
    twice = TWICE.format("the namespace qs (TORCH_LIBRARY)")
    for result in ("compiled", "a hit"):
        printed = run(script)
        assert printed[:3] == [result] * 3
        assert printed[3].startswith(twice)


@pytest.mark.slow
def test_version_that_needs_the_loaded_one_loads(run):
    printed = run("""
headers = "#include <stdlib.h>\\n#include <unistd.h>\\n#include <string>\\n"
first = 'static int first = setenv("FIRST", std::to_string(getpid()).c_str(), 1);'
second = 'static int second = atoi(getenv("FIRST") ?: "0") == getpid() ? 0 : (abort(), 0);'
load(fragment("qn", "f"), headers + first)
load(fragment("qn", "g"), headers + second)
""")
    assert printed == ["compiled", "compiled"]


@pytest.mark.slow
def test_next_version_is_refused_if_the_record_was_deleted(run):
    printed = run("""
import shutil
load(library("qta", "f"))
shutil.rmtree(os.environ["JIT_LOADER_CACHE"])
load(library("qtb", "f"))
""")
    assert printed[1].startswith(TWICE.format("operators or classes"))


MODULE = """
#include <Python.h>
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "module", nullptr, -1, nullptr};
PyMODINIT_FUNC PyInit_module(void) { return PyModule_Create(&definition); }
"""


@pytest.mark.slow
def test_modules_that_register_one_namespace_twice_are_refused(run):
    printed = run(f"""
for namespace, operators in ("qma", "f"), ("qmb", "f"), ("qmb", "fg"):
    load(library(namespace, *operators), {MODULE!r}, "module", is_python_module=True)
""")
    assert printed[:2] == ["compiled", "compiled"]
    assert printed[2].startswith("RestartNeeded: module registers the namespace qmb")


@pytest.mark.slow
def test_library_that_ends_the_child_is_reported(run):
    printed = run("""
load(library("qta", "f"))
load(fragment("qd", "f", "f"))
""")
    assert "The child process that opened the new version as a test died: " in printed[1]
    assert "Tried to register an operator (qd::f(int x) -> int)" in printed[1]
    assert "Restart Python" in printed[1]


@pytest.mark.slow
def test_library_that_cannot_be_opened_is_a_load_error(run):
    printed = run("""
load(library("qta", "f"))
load(library("qtb", "f"), "long missing(); long used = missing();")
""")
    assert printed[1].startswith("LibraryLoadError: ")
    assert "missing()" in printed[1]
