"""A link uses stubs instead of PyTorch's libraries, with the same result."""

import ctypes
import re
import shutil
import subprocess

import pytest

import jit_loader
from _jit_loader.build.pytorch import libraries

# The dynamic loader has to find PyTorch's function in libtorch_cpu.so.
THREADS = """\
namespace at { int get_num_threads(); }
extern "C" long other(void) { return at::get_num_threads() > 0 ? 100 : 0; }
"""
NO_UNDEFINED = ("-Wl,--no-undefined", "-lm -Wl,-z,defs", "-Wl,-rpath,/nowhere,-z,defs")


@pytest.fixture
def extension(tiny):
    """Returns the extension with a source that calls a function of PyTorch."""
    tiny.write("other.cpp", THREADS)
    return tiny


def links(tiny, output="tiny.so"):
    """Returns the number of links since the last call."""
    return sum(f" -o {output} " in call for call in tiny.calls())


def needed(library):
    """Returns the names of the libraries that a library needs."""
    printed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True)
    return re.findall(r"NEEDED.*\[(.*)\]", printed.stdout)


@pytest.mark.parametrize("linker", ["bfd", "gold", "lld", "mold"])
def test_linker_uses_stubs(extension, tmp_path, monkeypatch, linker):
    if shutil.which(f"ld.{linker}") is None:
        pytest.skip(f"needs ld.{linker}")
    monkeypatch.setenv("CXX", f"c++ -fuse-ld={linker}")
    trace = tmp_path / "trace"
    compiler = shutil.which("g++") or shutil.which("c++")
    extension.change_compiler(f'{compiler} "$@" -Wl,--trace > {trace}', step="link")
    module = extension.load()
    assert module.value() == 101
    assert links(extension) == 1
    assert ".stubs/libtorch_cpu.so" in trace.read_text()
    assert "libtorch_cpu.so" in needed(module.__file__)


def test_cpp_library_that_is_newer_than_that_of_the_process_prevents_stubs(extension, tmp_path):
    """PyTorch's libraries contain the new functions that g++ calls, such as for a large new[]."""
    newer = f"echo {tmp_path}/libstdc++.so.6.0.999; exit"
    extension.change_compiler(f"case $1 in -print-file-name=libstdc++.so) {newer};; esac", "any")
    extension.change_compiler("[ -e .stubs ] && exit 1", step="link")
    assert extension.value() == 101
    assert links(extension) == 1


LINKS = [  # a flag of the caller, one that g++ itself adds, the number of links
    *[(flag, "", 1) for flag in NO_UNDEFINED],
    ("-lm", "-Wl,--no-undefined", 2),  # the second one has no stubs
    ("-lm", "-Wl,--as-needed", 1),  # Ubuntu's g++ drops unused libraries
    (f"-L{libraries.pytorchs_folder()} -lc10 -ltorch_python", "-Wl,--as-needed", 1),
]


@pytest.mark.parametrize(("flag", "added", "expected_links"), LINKS)
def test_library_of_operators_is_linked_with_any_flags(extension, flag, added, expected_links):
    extension.change_compiler(f'set -- {added} "$@"', step="link")
    options = {"is_python_module": False, "extra_ldflags": [flag]}
    path = jit_loader.load("tiny", extension.sources[1], **options)
    assert links(extension) == expected_links
    assert ctypes.CDLL(path).other() == 100
    if added == "-Wl,--as-needed":
        assert "libtorch_cpu.so" in needed(path)
        assert "libtorch_python.so" not in needed(path)


def test_executable_is_linked_once_and_its_undefined_symbol_is_an_error(extension):
    source = extension.write("main.cpp", f"{THREADS}int main() {{ return other() != 100; }}\n")
    options = {"is_python_module": False, "is_standalone": True}
    subprocess.run([jit_loader.load("main", str(source), **options)], check=True)
    assert links(extension, "main") == 1
    extension.write("main.cpp", "int nowhere();\nint main() { return nowhere(); }\n")
    with pytest.raises(jit_loader.CompileError, match="nowhere"):
        jit_loader.load("main", str(source), **options)
