"""A build uses the build.ninja of an earlier one if PyTorch would write the same text."""

import os

import pytest

LOAD = """
import sys
import jit_loader
print(jit_loader.load("tiny", {sources!r}, extra_cflags={flags!r}).value())
print("torch.utils.cpp_extension" in sys.modules)
"""


@pytest.fixture
def load(tiny, python):
    """Edits and loads the extension in a new process; returns whether it imported cpp_extension."""
    values = iter(range(2, 100))

    def load(preamble="", flags=(), **environment):
        value = next(values)
        tiny.write("value.h", f"#define VALUE {value}\n")
        script = preamble + LOAD.format(sources=tiny.sources, flags=list(flags))
        printed, imported = python("-c", script, check=True, **environment).stdout.split()
        assert printed == str(value + 100)
        return imported == "True"

    return load


def kept_file(tiny):
    (path,) = (tiny.folder.parent / "cache").rglob("build_ninja.json")
    return path


def test_edit_in_a_new_process_does_not_import_pytorchs_writer(load):
    assert load(), "the first build"
    assert not load()


@pytest.mark.slow
def test_other_flags_and_settings_need_a_new_text(load):
    load()
    assert load(flags=["-DMORE"])
    assert load(LD_RUN_PATH="/nowhere")
    assert not load()


@pytest.mark.slow
def test_text_is_neither_kept_nor_used_if_the_program_has_changed_pytorchs_module(load, tiny):
    change = (
        "from torch.utils import cpp_extension as c\n"
        "paths = c.include_paths\n"
        "c.include_paths = lambda *args, **options: [*paths(*args, **options), '/nowhere']\n"
    )
    load(change)
    assert not list((tiny.folder.parent / "cache").rglob("build_ninja.json"))
    load()
    tiny.calls_path.unlink()
    load(change)
    assert "-isystem /nowhere" in tiny.calls_path.read_text()


@pytest.mark.slow
def test_new_or_missing_compiler_wrapper_needs_a_new_text(load, tiny):
    folder = tiny.folder.parent / "wrappers"
    folder.mkdir()
    (folder / "ccache").write_text('#!/bin/sh\nexec "$@"\n')
    (folder / "ccache").chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    load(PATH=path)
    assert load()
    assert load(PATH=path)
    assert load(PATH=path, TORCH_NO_COMPILER_WRAPPER="1")


@pytest.mark.slow
def test_kept_text_that_may_have_caused_a_failure_is_removed(load, tiny):
    compiler, broken = tiny.calls_path.parent / "c++", tiny.folder.parent / "broken"
    fails = f"[ -e {broken} ] && {{ echo ccache: not found; exit 127; }}"
    not_found = f'case "$*" in *" -c "*module.cpp*) {fails};; esac\n'
    compiler.write_text(compiler.read_text().replace("exec", not_found + "exec"))
    load()
    kept = kept_file(tiny)
    text = (tiny.folder / "other.cpp").read_text()
    tiny.write("other.cpp", "#error a mistake\n")
    with pytest.raises(AssertionError):
        load()
    assert kept.exists()
    tiny.write("other.cpp", text)
    broken.write_text("")
    with pytest.raises(AssertionError):
        load()
    broken.unlink()
    assert load()


@pytest.mark.slow
def test_damaged_text_is_ignored(load, tiny):
    load()
    kept_file(tiny).write_bytes(b"x" + kept_file(tiny).read_bytes())
    assert load()
    assert not load()


@pytest.mark.slow
def test_changed_system_header_is_noticed_while_the_compilers_run(load, tiny):
    """An object is not reused if only a system header that it includes has changed."""
    folder = tiny.folder.parent / "packages"
    folder.mkdir()
    header = folder / "more.h"
    header.write_text("#define MORE 100\n")
    text = '#include <more.h>\nextern "C" long other(void) { return MORE; }\n'
    tiny.write("other.cpp", text)
    preamble = (
        "from _jit_loader.key import toolchain\n"
        "path = toolchain.cpp_extension_path()\n"
        "toolchain.cpp_extension_path = lambda: path\n"
        f"toolchain.packages_folder = lambda: {str(folder)!r}\n"
    )
    load(preamble, CPLUS_INCLUDE_PATH=str(folder))
    tiny.compiled()
    header.write_text("#define MORE 100 // again\n")
    load(preamble, CPLUS_INCLUDE_PATH=str(folder))
    assert "other.cpp" in tiny.compiled()
    load(preamble, CPLUS_INCLUDE_PATH=str(folder))
    assert tiny.compiled() == ["module.cpp"]
