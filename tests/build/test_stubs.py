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

# The function is PyTorch's and must be found in libtorch_cpu.so when the module is loaded.
THREADS = """\
namespace at { int get_num_threads(); }
extern "C" long other(void) { return at::get_num_threads() > 0 ? 100 : 0; }
"""
WANT_ALL = ("-Wl,--no-undefined", "-lm -Wl,-z,defs", "-Wl,-rpath,/nowhere,-z,defs")
# g++ calls it if a new[] is too large. It is newer than the C++ library PyTorch is built for.
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
    """The extension, with a cache without stubs."""
    shutil.rmtree(stubs.find_stubs(cache_folder(), with_cuda=False))
    return tiny


@pytest.fixture
def threads(tiny):
    tiny.write("other.cpp", THREADS)
    return tiny


@pytest.fixture
def kept(tiny, initial_cache_files):
    """Puts stubs into the cache, as an earlier build does, and returns their folder."""
    made, _ = initial_cache_files
    return Path(shutil.copytree(made, os.path.join(cache_folder(), os.path.basename(made))))


def leave_out(monkeypatch):
    """Makes later links use no stubs, as if PyTorch's libraries had other names."""
    monkeypatch.setattr(stubs, "_real_name", lambda path: f"{path}.2.6")


def links(tiny, output="tiny.so"):
    """Returns the number of links since the last call."""
    calls = tiny.calls_path.read_text().splitlines()
    tiny.calls_path.unlink()
    return sum(f" -o {output} " in call for call in calls)


def needed(library):
    """Returns the names of the libraries that a library needs."""
    said = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True)
    return re.findall(r"NEEDED.*\[(.*)\]", said.stdout)


def versions(library):
    """Returns the versions of symbols that a library needs."""
    said = subprocess.run(["readelf", "-V", library], capture_output=True, text=True, check=True)
    return set(re.findall(r"Name: (\w+_[\d.]+)", said.stdout))


def test_linker_in_a_new_cache_uses_stubs_that_are_ready(threads, tmp_path):
    trace = tmp_path / "trace"
    wait = "for i in $(seq 600); do [ -e .stubs ] && break; sleep 0.1; done"
    traced = f'{shutil.which("g++") or shutil.which("c++")} "$@" -Wl,--trace > {trace}'
    threads.change_compiler(f"{wait}; {traced}", step="link")
    assert threads.value() == 101
    assert ".stubs/libtorch_cpu.so" in trace.read_text()


@pytest.mark.slow
def test_linker_does_not_wait_for_stubs(threads, tmp_path):
    linked = tmp_path / "linked"
    wait = f"for i in $(seq 600); do [ -e {linked} ] && break; sleep 0.1; done"
    threads.change_compiler(wait, step="stubs")
    threads.change_compiler(f"[ -e .stubs ] || touch {linked}", step="link")
    module = threads.load()
    assert module.value() == 101
    assert linked.exists()
    assert "libtorch_cpu.so" in needed(module.__file__)
    assert not Path(module.__file__).with_name(".stubs").is_symlink()


def test_link_with_one_stub_and_other_libraries_works(threads, kept, tmp_path):
    """A linker may start while the stubs are being made."""
    some = tmp_path / "some"
    some.mkdir()
    shutil.copy(kept / "libtorch_cpu.so", some)
    threads.change_compiler(f"ln -sfn {some} .stubs", step="link")
    module = threads.load()
    assert module.value() == 101
    assert links(threads) == 1
    files = read_manifest(module.__file__.rpartition("/")[0])["files"]
    for library in ("libc10.so", "libtorch_cpu.so"):
        assert library in needed(module.__file__)
        assert f"<packages>/torch/lib/{library}" in files


@pytest.mark.slow
def test_library_needs_the_same_libraries_as_without_stubs(threads, kept, monkeypatch):
    module = threads.load()
    assert module.value() == 101
    assert links(threads) == 1
    leave_out(monkeypatch)
    threads.write("value.h", "#define VALUE 2\n")
    again = threads.load()
    assert again.value() == 102
    assert "libtorch_cpu.so" in needed(again.__file__)
    assert set(needed(again.__file__)) <= set(needed(module.__file__))


@pytest.mark.slow
def test_caller_may_name_libraries_of_pytorch(threads, kept):
    threads.change_compiler('set -- -Wl,--as-needed "$@"', step="link")
    flags = [f"-L{stubs._pytorchs()}", "-lc10 -ltorch_python"]
    assert threads.load(extra_ldflags=flags).value() == 101
    assert links(threads) == 1


def test_linker_that_drops_unused_libraries_keeps_the_stubs(threads, kept):
    """Ubuntu's g++ passes --as-needed."""
    threads.change_compiler('set -- -Wl,--as-needed "$@"', step="link")
    assert threads.value() == 101
    assert links(threads) == 1


@pytest.mark.parametrize(
    ("flag", "expected_links"), [*[(flag, 1) for flag in WANT_ALL], ("-lm", 2)]
)
def test_link_that_needs_every_symbol_uses_the_libraries(threads, kept, flag, expected_links):
    """A flag of the caller prevents stubs. If g++ itself adds one, a second link has no stubs."""
    if expected_links == 2:
        threads.change_compiler('set -- "$@" -Wl,--no-undefined', step="link")
    options = {"is_python_module": False, "extra_ldflags": [flag]}
    path = jit_loader.load("tiny", threads.sources[1], **options)
    assert links(threads) == expected_links
    assert ctypes.CDLL(path).other() == 100


@pytest.mark.slow
def test_verbose_prints_both_links(threads, kept, capfd):
    threads.change_compiler('set -- "$@" -Wl,--no-undefined', step="link")
    jit_loader.load("tiny", threads.sources[1], is_python_module=False, verbose=True)
    assert links(threads) == 2
    lines = capfd.readouterr().out.splitlines()
    commands = [line for line in lines if line.endswith(" -o tiny.so")]
    assert [" -L.stubs " in command for command in commands] == [True, False]


def test_library_of_operators_needs_no_python(threads, kept):
    threads.change_compiler('set -- -Wl,--as-needed "$@"', step="link")
    path = jit_loader.load("tiny", threads.sources[1], is_python_module=False)
    assert "libtorch_cpu.so" in needed(path)
    assert "libtorch_python.so" not in needed(path)


def test_symbol_versions_are_the_same_as_without_stubs(tiny, kept, monkeypatch):
    """Without stubs, PyTorch's symbol is linked, which needs no new version of the C++ library."""
    tiny.write("other.cpp", THROWS)
    with_stubs = versions(tiny.load().__file__)
    leave_out(monkeypatch)
    tiny.write("value.h", "#define VALUE 2\n")
    module = tiny.load()
    assert module.value() == 102
    assert with_stubs == versions(module.__file__)


def test_undefined_symbol_is_an_import_error(tiny, kept):
    tiny.write("other.cpp", 'long nowhere();\nextern "C" long other(void) { return nowhere(); }\n')
    with pytest.raises(ImportError, match=r"nowhere\(\)"):
        tiny.load()
    assert links(tiny) == 1


def test_build_with_a_compiler_that_does_not_print_paths_works(threads):
    compiler = threads.calls_path.parent / "c++"
    text = compiler.read_text().replace("exec", 'case "$1" in -print-*) exit 1;; esac\nexec')
    compiler.write_text(text)
    assert threads.value() == 101


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to("nowhere")])
def test_file_in_the_place_of_the_stubs_is_replaced(threads, kept, make):
    threads.load()
    shutil.rmtree(kept)
    make(kept)
    threads.write("value.h", "#define VALUE 2\n")
    assert threads.value() == 102
    assert (kept / "libc10.so").exists()


@pytest.mark.slow
def test_damaged_stubs_that_cannot_be_replaced_are_not_used(threads, kept):
    threads.load()
    links(threads)
    (kept / "libtorch_cpu.so").write_bytes(b"")
    threads.change_compiler("exit 1", step="stubs")
    threads.write("value.h", "#define VALUE 2\n")
    module = threads.load()
    assert module.value() == 102
    assert "libtorch_cpu.so" in needed(module.__file__)
    assert links(threads) == 1


def test_complete_stubs_are_not_replaced(kept):
    """Two processes that find no stubs may make them at the same time."""
    before = kept.stat().st_ino
    assert stubs.make_stubs(cache_folder(), with_cuda=False) == str(kept)
    assert kept.stat().st_ino == before
    assert not list(kept.parent.glob(".stubs-*"))


def test_manifest_is_complete_if_the_stubs_are_removed_after_the_link(threads, kept):
    """The linker's trace names the libraries."""
    compiler = shutil.which("g++") or shutil.which("c++")
    threads.change_compiler(f'{compiler} "$@" && rm -r {kept}; exit', step="link")
    files = read_manifest(threads.load().__file__.rpartition("/")[0])["files"]
    assert "<packages>/torch/lib/libtorch_cpu.so" in files


def test_error_of_the_linker_names_no_stub(tiny, kept):
    with pytest.raises(jit_loader.CompileError, match="nosuch") as error:
        tiny.load(extra_ldflags=["-lnosuch"])
    assert "stubs" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"INPUT(-lm)", None])
def test_damaged_stubs_are_made_again(threads, kept, content):
    assert threads.value() == 101
    links(threads)
    whole = {path.name: path.read_bytes() for path in kept.iterdir()}
    for path in kept.iterdir():
        path.write_bytes(content) if content is not None else path.unlink()
    threads.write("value.h", "#define VALUE 2\n")
    assert threads.value() == 102
    assert links(threads) == 1
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == whole


@pytest.mark.parametrize("name", ["main", "stubs", "clock"])
def test_executable_with_an_undefined_symbol_is_an_error(threads, kept, name):
    source = threads.write("main.cpp", f"{THREADS}int main() {{ return other() != 100; }}\n")
    options = {"is_python_module": False, "is_standalone": True}
    path = jit_loader.load(name, str(source), **options)
    subprocess.run([path], check=True)
    assert links(threads, name) == 1
    threads.write("main.cpp", "int nowhere();\nint main() { return nowhere(); }\n")
    with pytest.raises(jit_loader.CompileError, match="nowhere"):
        jit_loader.load(name, str(source), **options)


def test_manifest_names_pytorchs_libraries_and_not_the_stubs(threads, kept):
    """The stubs have only a few of their symbols."""
    files = read_manifest(threads.load().__file__.rpartition("/")[0])["files"]
    assert "<packages>/torch/lib/libtorch_cpu.so" in files
    assert not [path for path in files if "/stubs" in path and "/usr/" not in path]
