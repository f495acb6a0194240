"""A link uses stubs instead of PyTorch's libraries, with the same result."""

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import jit_loader
from _jit_loader.build.pytorch import stubs
from _jit_loader.cache import cache_folder
from _jit_loader.cache.store import read_manifest
from tests.support.extension import make_compiler_without_cpp_library

# The dynamic loader has to find PyTorch's function in libtorch_cpu.so.
THREADS = """\
namespace at { int get_num_threads(); }
extern "C" long other(void) { return at::get_num_threads() > 0 ? 100 : 0; }
"""
NO_UNDEFINED = ("-Wl,--no-undefined", "-lm -Wl,-z,defs", "-Wl,-rpath,/nowhere,-z,defs")
# g++ calls the function if a new[] is too large. It is newer than the C++ library for which PyTorch
# is built.
THROWS = """\
namespace std { void __throw_bad_array_new_length(); }
volatile bool is_large = false;
extern "C" long other(void) {
  if (is_large) std::__throw_bad_array_new_length();
  return 100;
}
"""


@pytest.fixture
def tiny(tiny):
    """Returns the extension, with a cache without builds and stubs."""
    shutil.rmtree(stubs.find_stubs(cache_folder(), with_cuda=False))
    return tiny


@pytest.fixture
def extension(tiny):
    """Returns the extension with a source that calls a function of PyTorch."""
    tiny.write("other.cpp", THREADS)
    return tiny


@pytest.fixture
def stubs_folder(tiny, initial_cache_files):
    """Puts stubs into the cache, as an earlier build does, and returns their folder."""
    made, _ = initial_cache_files
    return Path(shutil.copytree(made, os.path.join(cache_folder(), os.path.basename(made))))


def use_no_stubs(monkeypatch):
    """Makes later links use no stubs, as if PyTorch's libraries had other names."""
    monkeypatch.setattr(stubs, "_real_name", lambda path: f"{path}.2.6")


def links(tiny, output="tiny.so"):
    """Returns the number of links since the last call."""
    calls = tiny.calls_path.read_text().splitlines()
    tiny.calls_path.unlink()
    return sum(f" -o {output} " in call for call in calls)


def needed(library):
    """Returns the names of the libraries that a library needs."""
    printed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True)
    return re.findall(r"NEEDED.*\[(.*)\]", printed.stdout)


def versions(library):
    """Returns the versions of symbols that a library needs."""
    printed = subprocess.run(["readelf", "-V", library], capture_output=True, text=True, check=True)
    return set(re.findall(r"Name: (\w+_[\d.]+)", printed.stdout))


def test_stubs_are_made_if_g_plus_plus_lacks_the_cpp_library(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", make_compiler_without_cpp_library(tmp_path))
    assert stubs.make_stubs(str(tmp_path), with_cuda=False)


def test_linker_in_a_new_cache_uses_stubs_that_are_ready(extension, tmp_path):
    trace = tmp_path / "trace"
    wait = "for i in $(seq 600); do [ -e .stubs ] && break; sleep 0.1; done"
    traced = f'{shutil.which("g++") or shutil.which("c++")} "$@" -Wl,--trace > {trace}'
    extension.change_compiler(f"{wait}; {traced}", step="link")
    assert extension.value() == 101
    assert ".stubs/libtorch_cpu.so" in trace.read_text()


@pytest.mark.slow
def test_linker_does_not_wait_for_stubs(extension, tmp_path):
    linked = tmp_path / "linked"
    wait = f"for i in $(seq 600); do [ -e {linked} ] && break; sleep 0.1; done"
    extension.change_compiler(wait, step="stubs")
    extension.change_compiler(f"[ -e .stubs ] || touch {linked}", step="link")
    module = extension.load()
    assert module.value() == 101
    assert linked.exists()
    assert "libtorch_cpu.so" in needed(module.__file__)
    assert not Path(module.__file__).with_name(".stubs").is_symlink()


def test_link_with_one_stub_and_other_libraries_works(extension, stubs_folder, tmp_path):
    """A linker may start while the stubs are being made."""
    some = tmp_path / "some"
    some.mkdir()
    shutil.copy(stubs_folder / "libtorch_cpu.so", some)
    extension.change_compiler(f"ln -sfn {some} .stubs", step="link")
    module = extension.load()
    assert module.value() == 101
    assert links(extension) == 1
    files = read_manifest(module.__file__.rpartition("/")[0])["files"]
    for library in ("libc10.so", "libtorch_cpu.so"):
        assert library in needed(module.__file__)
        assert f"<packages>/torch/lib/{library}" in files


@pytest.mark.slow
def test_library_needs_every_library_that_it_needs_without_stubs(
    extension, stubs_folder, monkeypatch
):
    module = extension.load()
    assert module.value() == 101
    assert links(extension) == 1
    use_no_stubs(monkeypatch)
    extension.write("value.h", "#define VALUE 2\n")
    again = extension.load()
    assert again.value() == 102
    assert "libtorch_cpu.so" in needed(again.__file__)
    assert set(needed(again.__file__)) <= set(needed(module.__file__))


@pytest.mark.slow
def test_callers_flags_may_name_libraries_of_pytorch(extension, stubs_folder):
    extension.change_compiler('set -- -Wl,--as-needed "$@"', step="link")
    flags = [f"-L{stubs._pytorchs()}", "-lc10 -ltorch_python"]
    assert extension.load(extra_ldflags=flags).value() == 101
    assert links(extension) == 1


def test_linker_that_drops_unused_libraries_keeps_the_stubs(extension, stubs_folder):
    """Ubuntu's g++ passes --as-needed."""
    extension.change_compiler('set -- -Wl,--as-needed "$@"', step="link")
    assert extension.value() == 101
    assert links(extension) == 1


@pytest.mark.parametrize(
    ("flag", "expected_links"), [*[(flag, 1) for flag in NO_UNDEFINED], ("-lm", 2)]
)
def test_link_that_needs_every_symbol_uses_the_libraries(
    extension, stubs_folder, flag, expected_links
):
    """A flag of the caller prevents stubs. If g++ itself adds one, a second link has no stubs."""
    if expected_links == 2:
        extension.change_compiler('set -- "$@" -Wl,--no-undefined', step="link")
    options = {"is_python_module": False, "extra_ldflags": [flag]}
    path = jit_loader.load("tiny", extension.sources[1], **options)
    assert links(extension) == expected_links
    assert ctypes.CDLL(path).other() == 100


@pytest.mark.slow
def test_verbose_prints_both_links(extension, stubs_folder, capfd):
    extension.change_compiler('set -- "$@" -Wl,--no-undefined', step="link")
    jit_loader.load("tiny", extension.sources[1], is_python_module=False, verbose=True)
    assert links(extension) == 2
    lines = capfd.readouterr().out.splitlines()
    commands = [line for line in lines if line.endswith(" -o tiny.so")]
    assert [" -L.stubs " in command for command in commands] == [True, False]


def test_library_of_operators_needs_no_python(extension, stubs_folder):
    extension.change_compiler('set -- -Wl,--as-needed "$@"', step="link")
    path = jit_loader.load("tiny", extension.sources[1], is_python_module=False)
    assert "libtorch_cpu.so" in needed(path)
    assert "libtorch_python.so" not in needed(path)


def test_symbol_versions_are_the_same_as_without_stubs(tiny, stubs_folder, monkeypatch):
    """Without stubs, PyTorch's symbol is linked, which needs no new version of the C++ library."""
    tiny.write("other.cpp", THROWS)
    with_stubs = versions(tiny.load().__file__)
    use_no_stubs(monkeypatch)
    tiny.write("value.h", "#define VALUE 2\n")
    module = tiny.load()
    assert module.value() == 102
    assert with_stubs == versions(module.__file__)


def test_undefined_symbol_is_an_import_error(tiny, stubs_folder):
    tiny.write("other.cpp", 'long nowhere();\nextern "C" long other(void) { return nowhere(); }\n')
    with pytest.raises(ImportError, match=r"nowhere\(\)"):
        tiny.load()
    assert links(tiny) == 1


def test_build_with_a_compiler_that_rejects_print_options_works(extension):
    compiler = extension.calls_path.parent / "c++"
    text = compiler.read_text().replace("exec", 'case "$1" in -print-*) exit 1;; esac\nexec')
    compiler.write_text(text)
    assert extension.value() == 101


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to("nowhere")])
def test_file_in_the_place_of_the_stubs_is_replaced(extension, stubs_folder, make):
    extension.load()
    shutil.rmtree(stubs_folder)
    make(stubs_folder)
    extension.write("value.h", "#define VALUE 2\n")
    assert extension.value() == 102
    assert (stubs_folder / "libc10.so").exists()


@pytest.mark.slow
def test_damaged_stubs_that_cannot_be_replaced_are_not_used(extension, stubs_folder):
    extension.load()
    links(extension)
    (stubs_folder / "libtorch_cpu.so").write_bytes(b"")
    extension.change_compiler("exit 1", step="stubs")
    extension.write("value.h", "#define VALUE 2\n")
    module = extension.load()
    assert module.value() == 102
    assert "libtorch_cpu.so" in needed(module.__file__)
    assert links(extension) == 1


def test_complete_stubs_are_not_replaced(stubs_folder):
    """Two processes that find no stubs may make them at the same time."""
    before = stubs_folder.stat().st_ino
    assert stubs.make_stubs(cache_folder(), with_cuda=False) == str(stubs_folder)
    assert stubs_folder.stat().st_ino == before
    assert not list(stubs_folder.parent.glob(".stubs-*"))


def test_manifest_is_complete_if_the_stubs_are_removed_after_the_link(extension, stubs_folder):
    """The linker's trace names the libraries."""
    compiler = shutil.which("g++") or shutil.which("c++")
    extension.change_compiler(f'{compiler} "$@" && rm -r {stubs_folder}; exit', step="link")
    files = read_manifest(extension.load().__file__.rpartition("/")[0])["files"]
    assert "<packages>/torch/lib/libtorch_cpu.so" in files


def test_error_of_the_linker_names_no_stub(tiny, stubs_folder):
    with pytest.raises(jit_loader.CompileError, match="nosuch") as error:
        tiny.load(extra_ldflags=["-lnosuch"])
    assert "stubs" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"INPUT(-lm)", None])
def test_damaged_stubs_are_made_again(extension, stubs_folder, content):
    assert extension.value() == 101
    links(extension)
    contents = {path.name: path.read_bytes() for path in stubs_folder.iterdir()}
    for path in stubs_folder.iterdir():
        path.write_bytes(content) if content is not None else path.unlink()
    extension.write("value.h", "#define VALUE 2\n")
    assert extension.value() == 102
    assert links(extension) == 1
    assert {path.name: path.read_bytes() for path in stubs_folder.iterdir()} == contents


@pytest.mark.parametrize("name", ["main", "stubs", "clock"])
def test_executable_is_linked_once_and_its_undefined_symbol_is_an_error(
    extension, stubs_folder, name
):
    source = extension.write("main.cpp", f"{THREADS}int main() {{ return other() != 100; }}\n")
    options = {"is_python_module": False, "is_standalone": True}
    path = jit_loader.load(name, str(source), **options)
    subprocess.run([path], check=True)
    assert links(extension, name) == 1
    extension.write("main.cpp", "int nowhere();\nint main() { return nowhere(); }\n")
    with pytest.raises(jit_loader.CompileError, match="nowhere"):
        jit_loader.load(name, str(source), **options)


def test_manifest_names_pytorchs_libraries_and_not_the_stubs(extension, stubs_folder):
    """The stubs have only a few of their symbols."""
    files = read_manifest(extension.load().__file__.rpartition("/")[0])["files"]
    assert "<packages>/torch/lib/libtorch_cpu.so" in files
    assert not [path for path in files if "/stubs" in path and "/usr/" not in path]
