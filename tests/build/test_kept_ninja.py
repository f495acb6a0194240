"""What PyTorch wrote into build.ninja serves again, where it would write the same."""

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
    """Edits the extension, loads it in a new process, and says whether PyTorch's code was asked."""
    values = iter(range(2, 100))

    def load(first="", flags=(), **environment):
        value = next(values)
        tiny.write("value.h", f"#define VALUE {value}\n")
        script = first + LOAD.format(sources=tiny.sources, flags=list(flags))
        said, asked = python("-c", script, check=True, **environment).stdout.split()
        assert said == str(value + 100)
        return asked == "True"

    return load


def kept_file(tiny):
    (path,) = (tiny.folder.parent / "cache").rglob("build_ninja.json")
    return path


def test_edit_in_a_new_process_asks_pytorch_for_nothing(load):
    assert load(), "the first build"
    assert not load()


def test_other_flags_and_settings_are_asked_for(load):
    load()
    assert load(flags=["-DMORE"])
    assert load(LD_RUN_PATH="/nowhere")
    assert not load()


@pytest.mark.slow
def test_process_that_may_have_changed_pytorchs_code_asks_it(load, tiny):
    change = "from torch.utils import cpp_extension as c\nc.CUDNN_HOME = '/nowhere'\n"
    assert load(change)
    assert not list((tiny.folder.parent / "cache").rglob("build_ninja.json")), "others do without"
    load()
    assert load(change)


@pytest.mark.slow
def test_wrapper_of_compilers_that_comes_or_goes_is_asked_for(load, tiny):
    folder = tiny.folder.parent / "wrappers"
    folder.mkdir()
    (folder / "ccache").write_text('#!/bin/sh\nexec "$@"\n')
    (folder / "ccache").chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    load(PATH=path)
    assert load()
    assert load(PATH=path)
    assert load(PATH=path, TORCH_NO_COMPILER_WRAPPER="1")


def test_kept_text_that_may_have_failed_a_build_is_removed(load, tiny):
    compiler, broken = tiny.calls_path.parent / "c++", tiny.folder.parent / "broken"
    fails = f"[ -e {broken} ] && {{ echo ccache: not found; exit 127; }}"
    not_found = f'case "$*" in *" -c "*module.cpp*) {fails};; esac\n'
    compiler.write_text(compiler.read_text().replace("exec", not_found + "exec"))
    load()
    kept = kept_file(tiny)
    text = (tiny.folder / "other.cpp").read_text()
    tiny.write("other.cpp", "#error a mistake of the user's\n")
    with pytest.raises(AssertionError):
        load()
    assert kept.exists()
    tiny.write("other.cpp", text)
    broken.write_text("")
    with pytest.raises(AssertionError):
        load()
    broken.unlink()
    assert load()


def test_damaged_file_is_ignored(load, tiny):
    load()
    kept_file(tiny).write_bytes(b"x" + kept_file(tiny).read_bytes())
    assert load()
    assert not load()


def test_header_of_the_system_is_looked_at_while_the_compilers_work(load, tiny):
    """An object that fits by the user's own files alone is not linked in, if that one differs."""
    folder = tiny.folder.parent / "packages"
    folder.mkdir()
    header = folder / "more.h"
    header.write_text("#define MORE 100\n")
    text = '#include <more.h>\nextern "C" long other(void) { return MORE; }\n'
    tiny.write("other.cpp", text)
    first = (
        "from _jit_loader.key import toolchain\n"
        "path = toolchain.cpp_extension_path()\n"
        "toolchain.cpp_extension_path = lambda: path\n"
        f"toolchain.packages_folder = lambda: {str(folder)!r}\n"
    )
    load(first, CPLUS_INCLUDE_PATH=str(folder))
    tiny.compiled()
    header.write_text("#define MORE 100 // again\n")
    load(first, CPLUS_INCLUDE_PATH=str(folder))
    assert "other.cpp" in tiny.compiled()
    load(first, CPLUS_INCLUDE_PATH=str(folder))
    assert tiny.compiled() == ["module.cpp"]
