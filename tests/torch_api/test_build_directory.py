"""load puts the same files into the caller's build_directory as PyTorch's load does."""

import ctypes
import os
from pathlib import Path

import pytest

import jit_loader
from tests.support.extension import binding, inline_module


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "build"


def test_library_is_opened_from_the_build_directory(tiny, folder):
    module = tiny.load(build_directory=str(folder))
    assert Path(module.__file__).parent == folder
    assert module.__spec__.origin == module.__file__
    assert {"module.o", "other.o"} <= set(os.listdir(folder))
    assert os.path.samefile(folder / "tiny.so", module.__file__)
    assert module.__file__ in Path("/proc/self/maps").read_text()
    paths = [folder, *folder.iterdir()]
    before = [os.stat(path).st_ctime_ns for path in paths]
    assert tiny.load(build_directory=str(folder)) is module
    assert [os.stat(path).st_ctime_ns for path in paths] == before
    assert paths == [folder, *folder.iterdir()]


def test_hit_opens_the_library_from_the_build_directory(tiny, folder, in_process):
    def load_and_return_path():
        return tiny.load(build_directory=str(folder)).__file__

    opened = in_process(load_and_return_path)
    for path in folder.iterdir():
        path.unlink()
    assert in_process(load_and_return_path) == opened
    assert os.path.exists(opened)


def test_changed_version_is_opened_from_another_path(tiny, folder):
    """A process that opens a path again gets the old code."""
    before = tiny.load(build_directory=str(folder))
    tiny.write("value.h", "#define VALUE 2\n")
    after = tiny.load(build_directory=str(folder))
    assert (before.value(), after.value()) == (101, 102)
    assert before.__file__ != after.__file__
    assert os.path.samefile(folder / "tiny.so", after.__file__)


def test_object_is_in_the_build_directory_before_the_build_ends(tiny, folder):
    """Programs count the objects to show the progress."""
    tiny.write("other.cpp", "int a = ;\n")
    tiny.error(build_directory=str(folder))
    assert (folder / "module.o").exists()


@pytest.mark.parametrize("flag", ["-Isub", "-O1 -I sub", "-isystem sub"])
def test_folder_in_flags_that_is_relative_to_the_build_directory_is_refused(tiny, folder, flag):
    (folder / "sub").mkdir(parents=True)
    for name, wrong in (("extra_cflags", flag), ("extra_ldflags", "-Lsub")):
        options = {name: [wrong], "build_directory": str(folder)}
        tiny.error(ValueError, match=f"{name}: give the absolute path of sub", **options)
    options = {"extra_cflags": ["-I. -Inowhere"], "extra_ldflags": [f"-L{folder}/sub"]}
    assert tiny.value(**options, build_directory=str(folder)) == 101


@pytest.fixture
def inline(cache, folder):
    """Returns a function that loads the inline module "letter", with a header of its folder."""
    folder.mkdir()
    (folder / "beside.h").write_text("#define BESIDE 5\n")
    text = binding("letter", '#include "beside.h"\n', value="BESIDE")

    def load(text=text, **options):
        return jit_loader.load_inline(
            "letter", text, no_implicit_headers=True, build_directory=str(folder), **options
        )

    return load


def test_inline_sources_are_in_the_build_directory(inline, folder):
    assert inline().value() == 5
    assert "PyInit_letter" in (folder / "main.cpp").read_text()
    (folder / "main.cpp").unlink()
    assert inline().value() == 5
    assert (folder / "main.cpp").exists()


def test_inline_error_names_a_source_that_has_the_callers_text(inline):
    with pytest.raises(jit_loader.CompileError, match=r"^letter: main\.cpp:1: error") as error:
        inline("int a = ;")
    assert Path(error.value.file).read_text() == "int a = ;\n"


def test_inline_source_that_another_extension_replaces_is_not_compiled(cache, folder, tiny):
    """Two extensions with one folder: the text of one must never get the code of the other."""

    def load(name, number):
        return inline_module(number, name=name, build_directory=str(folder)).value()

    other = tiny.write("other.cpp", binding("alpha", value=2000))
    tiny.change_compiler(f"mkdir -p {folder}; cp {other} {folder}/main.cpp")
    assert load("alpha", 1000) == 1000
    assert load("beta", 3000) == 3000
    assert load("alpha", 1000) == 1000
    assert "PyInit_alpha" in (folder / "main.cpp").read_text()
    assert {"alpha.so", "beta.so", "main.cpp", "main.o"} <= set(os.listdir(folder))


def test_returned_path_of_a_library_is_in_the_build_directory(inline, folder):
    path = inline('extern "C" int value() { return 4; }', is_python_module=False)
    assert path == str(folder / "letter.so")
    assert ctypes.CDLL(path).value() == 4


def test_library_that_cannot_be_imported_does_not_replace_the_previous_one(tiny, folder):
    tiny.load(build_directory=str(folder))
    before = (folder / "tiny.so").read_bytes()
    tiny.write("module.cpp", "int no_module;\n")
    tiny.error(ImportError, build_directory=str(folder))
    assert (folder / "tiny.so").read_bytes() == before


def test_error_names_a_build_directory_that_cannot_be_made_and_not_the_cache(tiny, tmp_path):
    (tmp_path / "file").write_text("")
    error = tiny.error(OSError, match="file/build", build_directory=f"{tmp_path}/file/build")
    assert "cache" not in str(error)
