"""Sources and folders with unusual names compile, and messages name them correctly."""

import os
import subprocess

import pytest

import jit_loader
from tests.support.extension import MODULE, OTHER

ODD = ["a b$HOME's (1)", 'say "hi"; x:y#b&{c}%', "-Übung\\数~[1]*?", "tab\t|here"]


@pytest.mark.parametrize("odd", ODD)
def test_paths_with_odd_characters_compile(tiny, odd):
    """The characters are in the names of the folders, the sources and a header."""
    for name, place in (("module.cpp", odd), ("other.cpp", odd), ("value.h", f"{odd}/inc {odd}")):
        (tiny.folder / name).rename(tiny.write(f"{place}/{odd}{name}", ""))
    folder = tiny.folder / odd
    sources = [str(folder / f"{odd}{name}") for name in ("module.cpp", "other.cpp")]
    include = folder / f"inc {odd}"
    header = f"{odd}value.h"
    included = 'include "' + header + '"' if '"' not in odd else "include <" + header + ">"
    module = folder / f"{odd}module.cpp"
    module.write_text(module.read_text().replace('include "value.h"', included))
    options = {"extra_include_paths": [str(include)]}

    assert jit_loader.load("tiny", sources, **options).value() == 101
    (include / header).write_text("#define VALUE 2\n")
    assert jit_loader.load("tiny", sources, **options).value() == 102, "the edit was not noticed"
    tiny.compiled()
    assert jit_loader.load("tiny", sources, **options).value() == 102
    assert tiny.compiled() == []

    module.write_text(module.read_text() + "int a = ;\n")
    with pytest.raises(jit_loader.CompileError) as error:
        jit_loader.load("tiny", sources, **options)
    message = str(error.value)
    assert message.startswith(f"tiny: {odd}module.cpp:8: error: ")
    assert "  8 | int a = ;\n" in message
    assert _run_again(message) == 1


def test_cache_in_a_folder_with_odd_characters_works(tiny, monkeypatch, tmp_path):
    monkeypatch.setenv("JIT_LOADER_CACHE", str(tmp_path / "my $cache: it's"))
    assert tiny.value() == 101
    tiny.write("other.cpp", "int a = ;\n")
    assert _run_again(str(tiny.error())) == 1


def test_source_in_a_folder_whose_name_is_not_utf8_compiles(tiny):
    folder = tiny.folder / "caf\udce9"
    folder.mkdir()
    for name in ("module.cpp", "other.cpp", "value.h"):
        (tiny.folder / name).rename(folder / name)
    tiny.folder = folder
    assert tiny.value() == 101
    tiny.write("value.h", "int a = ;\n")
    tiny.error(match=r"^tiny: value\.h:1: error: ")


def _run_again(message):
    line = next(line for line in message.splitlines() if "run it again" in line)
    again = subprocess.run(line.split(": ", 1)[1], shell=True, capture_output=True, check=False)
    assert b"FAILED" in again.stdout
    return again.returncode


@pytest.mark.parametrize("other", ["sub/module.cpp", "module.cc", "sub/module.cxx"])
def test_sources_with_the_same_basename_compile(tiny, other):
    tiny.write(other, OTHER)
    sources = [tiny.sources[0], str(tiny.folder / other), str(tiny.write("module_2.cpp", ""))]
    assert jit_loader.load("tiny", sources).value() == 101
    tiny.write(other, 'extern "C" long other(void) { return 200; }\n')
    tiny.compiled()
    assert jit_loader.load("tiny", sources).value() == 201
    assert tiny.compiled() == [other.split("/")[-1]]


def test_source_that_ninja_cannot_take_is_refused(tiny):
    source = tiny.write("a\nb.cpp", "int x;")
    with pytest.raises(ValueError, match=r"ninja takes no path with any of .*a\\nb\.cpp"):
        jit_loader.load("tiny", [*tiny.sources, str(source)])
    assert tiny.compiled() == []


@pytest.mark.parametrize("place", ["source", "include path"])
@pytest.mark.parametrize("odd", ["a$b", 'a"b', "a`b", "a\tb"])
def test_path_that_nvcc_cannot_take_is_refused(tiny, monkeypatch, odd, place):
    """nvcc puts paths between double quotes into shell commands."""
    monkeypatch.setattr("_jit_loader.key.toolchain.why_no_cuda", lambda: None)
    monkeypatch.setattr("_jit_loader.key.toolchain.architecture_flags", lambda *_: [])
    kernel = tiny.write("plain.cu" if place == "include path" else f"{odd}/k.cu", "")
    paths = [str(tiny.folder / odd)] if place == "include path" else []
    with pytest.raises(ValueError, match="nvcc takes no path with"):
        jit_loader.load("tiny", [*tiny.sources, str(kernel)], extra_include_paths=paths)
    assert tiny.compiled() == []


@pytest.mark.parametrize("argument", ["extra_include_paths", "extra_cflags"])
def test_arguments_that_are_not_utf8_are_taken(tiny, argument):
    folder = os.fsdecode(os.fsencode(tiny.folder) + b"/caf\xe9")
    (tiny.folder / "value.h").rename(tiny.write(f"{folder}/value.h", ""))
    value = folder if argument == "extra_include_paths" else f"-I{folder}"
    assert tiny.value(**{argument: [value]}) == 101


NO_NAMES = ["", "..", ".", "../x", "/x", "a/b", "a b", "a\0b", ".hidden", "a\n"]


@pytest.mark.parametrize(
    ("name", "is_module"),
    [*((n, False) for n in NO_NAMES), *((n, True) for n in [*NO_NAMES, "é", "1st", "a-b", "a.b"])],
)
def test_invalid_name_is_refused(tiny, tmp_path, name, is_module):
    before = sorted(tmp_path.rglob("*"))
    for error in (ValueError, RuntimeError):  # PyTorch's is an error of the compiler
        with pytest.raises(error, match="cannot be the name of an extension"):
            jit_loader.load(name, tiny.sources, is_python_module=is_module)
    assert sorted(tmp_path.rglob("*")) == before


def test_longest_allowed_name_loads_and_longer_ones_are_refused(tiny):
    """Python limits the length of a module's name, and the file system that of a library's."""
    name = "n" * 200
    tiny.write("module.cpp", MODULE.replace("PyInit_tiny", f"PyInit_{name}"))
    assert jit_loader.load(name, tiny.sources).value() == 101
    for is_module in (True, False):
        with pytest.raises(ValueError, match="has 201 characters"):
            jit_loader.load("n" * 201, tiny.sources, is_python_module=is_module)
    assert jit_loader.load("é", tiny.sources[1], is_python_module=False).endswith("/é.so")


@pytest.mark.slow
def test_cache_behind_a_symlink_works(tiny, tmp_path, monkeypatch):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    monkeypatch.setenv("JIT_LOADER_CACHE", str(tmp_path / "link" / "cache"))
    assert tiny.value() == 101
    tiny.compiled()
    assert tiny.value() == 101
    tiny.write("value.h", "#define VALUE 2\n")
    assert tiny.value() == 102
    assert tiny.compiled() == ["module.cpp"]
