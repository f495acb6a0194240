"""Tests extensions of one process that register operators, and so cannot be loaded twice."""

import pytest

from tests.support.extension import binding

# What STABLE_TORCH_LIBRARY and STABLE_TORCH_LIBRARY_FRAGMENT do. Their headers take 1 s to compile.
PLAIN = """\
extern "C" {
int aoti_torch_library_init_def(const char*, const char*, unsigned, void**);
int aoti_torch_library_init_fragment(const char*, const char*, unsigned, void**);
int aoti_torch_library_def(void*, const char*);
}
namespace outer1 { namespace {
"""
STABLE = """\
#include <torch/csrc/stable/library.h>
namespace outer1 { namespace { STABLE_TORCH_LIBRARY(%s, m) { m.def("f(int x) -> int"); } } }
"""
IN_A_PROCESS = f"""
import sys
import jit_loader
PLAIN, STABLE = {PLAIN!r}, {STABLE!r}
def load(text, name="operators", **options):
    with open(f"{{name}}.cpp", "w") as file:
        file.write(text)
    try:
        jit_loader.load(name, [f"{{name}}.cpp"], **{{"is_python_module": False, **options}})
    except Exception as error:
        print(f"{{type(error).__name__}}: {{error}}")
    else:
        print("compiled" if jit_loader.loaded(name).compiled else "a hit")
def library(namespace, operator="f", kind="def"):
    variable = {{"def": "STABLE_TORCH_LIBRARY", "fragment": "FRAGMENT"}}[kind]
    init = f'''[] {{{{
        void* m;
        int failed = aoti_torch_library_init_{{kind}}("{{namespace}}", "", 0, &m);
        if (failed || aoti_torch_library_def(m, "{{operator}}(int x) -> int")) throw 1;
        return 0;
    }}}}()'''
    return f"{{PLAIN}} int {{variable}}_static_init_{{namespace}} = {{init}}; }}}} }}}}"
"""
CHANGED = (
    "RestartNeeded: {} registers operators or classes, which PyTorch accepts only once per "
    "process, and this process has loaded another build of it. Restart Python (in a notebook, the "
    "kernel) to use the new build; until then the old one stays active"
)
TAKEN = "RestartNeeded: {} registers the namespace {} (TORCH_LIBRARY), which another library of"


@pytest.fixture
def run(cache, tmp_path, python):
    """Runs IN_A_PROCESS and a script in a new process; returns the printed lines."""

    def run_there(script):
        finished = python("-c", IN_A_PROCESS + script, cwd=tmp_path, check=True)
        assert finished.stderr == ""
        return finished.stdout.splitlines()

    return run_there


@pytest.mark.parametrize("kind", ["def", "fragment"])
def test_changed_version_is_published_and_refused(run, kind):
    script = f"""
load(library("qta", "f", {kind!r}))
for _ in range(2):
    load(library("qtb", "g", {kind!r}))
load(library("qta", "f", {kind!r}))
"""
    refused = CHANGED.format("operators")
    assert run(script) == ["compiled", refused, refused, "a hit"]
    assert run(f'load(library("qtb", "g", {kind!r}))') == ["a hit"]


def test_namespace_of_another_extension_is_published_and_refused(run):
    script = """
load(library("qta", "f"))
load(library("qta", "g"), "other")
load(library("qta", "g", "fragment"), "fragment")
load(library("qtb", "g"), "another")
"""
    for how in "compiled", "a hit":
        first, second, *others = run(script)
        assert [first, *others] == [how] * 3
        assert second.startswith(TAKEN.format("other", "qta"))
        text = "Restart Python (in a notebook, the kernel) to load other without the other library"
        assert text in second
    assert run('load(library("qta", "g"), "other")') == ["a hit"]


def test_namespace_that_is_the_name_of_the_extension_is_refused(run):
    """The symbols of TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) have the name of the macro."""
    printed = run("""
load(library("qta", "f"), "first")
text = library("TORCH_EXTENSION_NAME", "g")
text = text.replace('"TORCH_EXTENSION_NAME"', "STRING(TORCH_EXTENSION_NAME)")
load("#define TEXT(x) #x\\n#define STRING(x) TEXT(x)\\n" + text, "qta")
""")
    assert printed[0] == "compiled"
    assert printed[1].startswith(TAKEN.format("qta", "qta"))


def test_namespace_that_python_has_registered_is_refused(run):
    printed = run("""
import torch
held = torch.library.Library("qta", "DEF")
load(library("qta", "f"))
del held
load(library("qta", "f"))
""")
    assert printed[0].startswith(TAKEN.format("operators", "qta"))
    assert printed[1] == "a hit"


def test_changed_version_without_registrations_loads(run):
    assert run('load(library("qta", "f")); load("int plain;")') == ["compiled"] * 2


def test_changed_module_with_registrations_is_refused(run, tmp_path):
    printed = run(f"""
for operator in "fg":
    load({binding("module")!r} + library("qta", operator), "module", is_python_module=True,
         build_directory={str(tmp_path / "build")!r})
""")
    assert printed == ["compiled", CHANGED.format("module")]


def test_next_version_is_refused_if_the_first_was_removed_from_the_cache(run, cache):
    printed = run(f"""
import shutil
load(library("qta", "f"))
shutil.rmtree({str(cache)!r})
load(library("qtb", "f"))
""")
    assert printed == ["compiled", CHANGED.format("operators")]


@pytest.mark.parametrize("kind", ["def", "fragment"])
def test_build_after_a_failed_publication_is_published_and_refused(run, kind):
    """What the first build has registered stays, and a second registration ends the process."""
    failed, refused = run(f"""
import os
fsync = os.fsync
def fail(descriptor):
    raise OSError(5, "Input/output error")
os.fsync = fail
load(library("qta", "f", {kind!r}))
os.fsync = fsync
load(library("qta", "f", {kind!r}))
""")
    assert "cannot be written to (Input/output error)" in failed
    assert refused == CHANGED.format("operators")
    assert run(f'load(library("qta", "f", {kind!r}))') == ["a hit"]


def test_corrected_library_loads(run):
    printed = run("""
load(library("qta", "f") + "long missing(); long used = missing();")
load(library("qta", "f"))
""")
    assert printed[0].startswith("LibraryLoadError: ")
    assert "missing()" in printed[0]
    assert printed[-1] == "compiled"


@pytest.mark.slow
def test_namespaces_of_pytorchs_macros_are_found(run):
    printed = run("""
load(STABLE % "qta", "first")
load(STABLE % "qta", "second")
load('#include <torch/library.h>\\nTORCH_LIBRARY(qta, m) {}', "third")
""")
    assert printed[0] == "compiled"
    assert printed[1].startswith(TAKEN.format("second", "qta"))
    assert printed[2].startswith(TAKEN.format("third", "qta"))


OLDER = {
    "operator": """
#include <ATen/core/op_registration/op_registration.h>
long f(long x) { return x; }
static auto operators = torch::RegisterOperators().op("qta::f", &f);
""",
    "class": """
#include <torch/custom_class.h>
struct Held : torch::CustomClassHolder {};
static auto classes = torch::class_<Held>("qta", "Held").def(torch::init<>());
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", OLDER)
def test_changed_version_with_an_older_kind_of_registration_is_refused(run, kind):
    printed = run(f"load({OLDER[kind]!r})\nload({OLDER[kind]!r} + '// changed')")
    assert printed == ["compiled", CHANGED.format("operators")]
