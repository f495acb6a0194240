"""install() replaces functions of PyTorch's module."""

import pytest

from tests.support.extension import program

# Each script runs in a new process that has imported only torch and jit_loader.
BEGIN = """
import sys
import torch, jit_loader
SOURCES = {sources!r}
"""


@pytest.fixture
def run(tiny, python):
    """Returns run(script), which runs a script in a process; SOURCES are the sources of tiny."""

    def run_there(script):
        return python("-c", BEGIN.format(sources=tiny.sources) + script, check=True).stdout

    return run_there


def test_hit_does_not_import_pytorchs_module(tiny, run):
    tiny.load()
    run("""
jit_loader.install()
assert jit_loader.load("tiny", SOURCES).value() == 101
assert not jit_loader.loaded("tiny").compiled
assert "torch.utils.cpp_extension" not in sys.modules
""")


ORDERS = [
    "install(); install(); build(); import_it()",
    "import_it(); build(); install(); build(); install()",
]


@pytest.mark.parametrize("steps", ORDERS)
def test_install_import_and_build_work_in_any_order(tiny, run, steps):
    """The first build gets its commands from PyTorch's module."""
    run(f"""
from jit_loader import install
def build():
    with open({str(tiny.folder / "value.h")!r}, "a") as file:
        file.write("\\n")
    assert jit_loader.load("tiny", SOURCES, extra_cflags=["-DFIRST"]).value() == 101
    assert jit_loader.loaded("tiny").compiled
def import_it():
    import torch.utils.cpp_extension
{steps}
from torch.utils.cpp_extension import load, load_inline, _jit_compile
assert load is jit_loader.load and load_inline is jit_loader.load_inline
from _jit_loader.build.pytorch.cpp_extension import copy_of_names
for name in ("load", "load_inline"):
    assert copy_of_names()[name].__code__.co_filename.endswith("cpp_extension.py")
build()
""")


def test_threads_that_import_the_module_at_the_same_time_get_ours(tiny, run):
    """A build imports it too, under a lock of the loader."""
    run("""
import threading
jit_loader.install()
seen, start = [], threading.Barrier(8)
def use(number):
    start.wait()
    if number % 2:
        seen.append(jit_loader.load("tiny", SOURCES).value() == 101)
    else:
        from torch.utils.cpp_extension import CUDAExtension, load, load_inline
        seen.append((load, load_inline) == (jit_loader.load, jit_loader.load_inline))
threads = [threading.Thread(target=use, args=[number]) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert seen == [True] * 8
""")


# Private functions


PRIVATE = """
jit_loader.install()
from torch.utils.cpp_extension import (
    _import_module_from_library, _jit_compile, _write_ninja_file_and_build_library,
)
from pathlib import Path
FOLDER = Path({folder!r}) / "private"
NOTHING = [None] * 5
"""


@pytest.fixture
def run_private(run, tmp_path):
    return lambda script: run(PRIVATE.format(folder=str(tmp_path)) + script)


def test_jit_compile_uses_the_cache(tiny, run_private):
    """gsplat retries with a newer PyTorch's arguments if the error says that some are missing."""
    run_private("""
arguments = [SOURCES, *NOTHING, str(FOLDER), False]
options = {"with_cuda": None, "with_sycl": None, "is_python_module": True, "is_standalone": False}
module = _jit_compile("tiny", *arguments, **options, keep_intermediates=True)
assert module.value() == 101
assert jit_loader.loaded("tiny").compiled and (FOLDER / "tiny.so").exists()
assert jit_loader.load("tiny", SOURCES) is module
assert _import_module_from_library("tiny", str(FOLDER), True) is module
try:
    _jit_compile("tiny", SOURCES, is_standalone=False)
except TypeError as error:
    assert "_jit_compile() missing 10 required positional arguments: 'extra_" in str(error)
else:
    raise AssertionError
""")
    tiny.write("value.h", "#define VALUE 2\n")
    run_private("""
assert _jit_compile("tiny", SOURCES, *NOTHING, str(FOLDER), False, None, None, True, False)
assert _import_module_from_library("tiny", FOLDER, True).value() == 102
assert _import_module_from_library("tiny", FOLDER, is_python_module=False).endswith("tiny.so")
""")


def test_private_functions_build_a_library_and_then_import_it(tiny, run_private):
    run_private("""
def built():
    arguments = [SOURCES, *NOTHING, str(FOLDER), False, None, None]
    assert _write_ninja_file_and_build_library("tiny", *arguments) is None
    return _import_module_from_library("tiny", str(FOLDER), True)
module = built()
assert (FOLDER / "tiny.so").exists() and "cache" in jit_loader.loaded("tiny").path
assert module.value() == 101 and module.__name__ == "tiny"
assert _import_module_from_library("tiny", str(FOLDER), True) is module
Path(SOURCES[0]).with_name("value.h").write_text("#define VALUE 3\\n")
assert built().value() == 103 and module.value() == 101
(FOLDER / "tiny.so").unlink()  # another program puts the first version there
(FOLDER / "tiny.so").write_bytes(Path(module.__file__).read_bytes())
assert _import_module_from_library("tiny", str(FOLDER), True).value() == 101
(FOLDER / "tiny.so").unlink()
assert built().value() == 103
""")
    run_private("""
assert _import_module_from_library("tiny", str(FOLDER), True).value() == 103  # PyTorch's function
""")


def test_second_install_replaces_the_functions_of_a_reloaded_module(run):
    run("""
import importlib
jit_loader.install()
from torch.utils import cpp_extension
def names():
    return [f.__code__.co_name for f in (cpp_extension._jit_compile, cpp_extension.load)]
installed = names()
importlib.reload(cpp_extension)
assert names() == ["_jit_compile", "load"] != installed
jit_loader.install()
assert names() == installed
assert cpp_extension._jit_compile.__wrapped__.__code__.co_name == "_jit_compile"
""")


def test_build_after_a_reload_of_pytorchs_module_is_ours(tiny, run):
    """PyTorch's own ninja and import would run inside of the build."""
    run(f"""
import importlib
from pathlib import Path
from torch.utils import cpp_extension
def value(number):
    Path({str(tiny.folder / "value.h")!r}).write_text(f"#define VALUE {{number}}\\n")
    return jit_loader.load("tiny", SOURCES).value()
assert value(2) == 102
for number in (3, 4):
    importlib.reload(cpp_extension)
    theirs = cpp_extension._run_ninja_build, cpp_extension._import_module_from_library
    def fail(*args, **kwargs):
        raise AssertionError
    cpp_extension._run_ninja_build = cpp_extension._import_module_from_library = fail
    assert value(number) == 100 + number
    assert cpp_extension._run_ninja_build is fail
""")
    assert len(tiny.compiled()) == 4


def test_cuda_home_of_the_program_is_used(run, tmp_path):
    nvcc = program(tmp_path / "toolkit" / "bin" / "nvcc", "#!/bin/sh\n")
    run(f"""
import torch.utils.cpp_extension
from _jit_loader.key import memo_paths, toolchain
def found():
    return toolchain.nvcc_path(), memo_paths("load", [])
before = found()
assert before[0] != {str(nvcc)!r}
theirs = torch.utils.cpp_extension.CUDA_HOME
torch.utils.cpp_extension.CUDA_HOME = {str(nvcc.parent.parent)!r}
assert found()[0] == {str(nvcc)!r} and found()[1] != before[1]
torch.utils.cpp_extension.CUDA_HOME = theirs
assert found() == before
""")


def test_pytorchs_load_of_sycl_sources_calls_pytorchs_private_functions(run, tmp_path):
    """load passes SYCL sources to PyTorch's load; our private functions would pass them back."""
    run(f"""
jit_loader.install()
try:
    jit_loader.load("tiny", SOURCES, with_sycl=True, build_directory={str(tmp_path)!r})
except OSError as error:
    assert "SYCL runtime" in str(error)
else:
    raise AssertionError
""")


@pytest.mark.parametrize("name", ["_jit_compile", "_import_module_from_library"])
def test_no_private_function_is_replaced_if_one_has_unknown_parameters(run, name):
    run(f"""
import torch.utils.cpp_extension as module
def unknown(name, sources, something_new): pass
module.{name} = unknown
names = ["_jit_compile", "_write_ninja_file_and_build_library"]
theirs = [getattr(module, name) for name in names]
jit_loader.install()
assert [getattr(module, name) for name in names] == theirs
assert module.load is jit_loader.load
""")
