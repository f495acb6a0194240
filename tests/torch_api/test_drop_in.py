"""load and load_inline behave like PyTorch's functions: arguments, results and exceptions."""

import inspect
import os
import subprocess

import pytest
import torch

import jit_loader
from _jit_loader.build.pytorch import cpp_extension as pytorch
from _jit_loader.torch_api.inline import source_texts
from tests.support.extension import binding, inline_module


@pytest.mark.parametrize("function", ["load", "load_inline"])
def test_signature_begins_with_pytorchs(function):
    """Names, order, kinds and defaults of PyTorch's arguments are equal."""

    def parameters(of):
        return [(p.name, p.kind, p.default) for p in inspect.signature(of).parameters.values()]

    theirs = parameters(pytorch.copy_of_names()[function])
    # PyTorch 2.11 lacks the last argument of 2.15's load_inline.
    assert parameters(getattr(jit_loader, function))[: len(theirs)] == theirs


def test_relative_paths_start_at_the_current_folder(tiny, monkeypatch):
    monkeypatch.chdir(tiny.folder)
    tiny.write("include/deep.h", "#define VALUE 7\n")
    tiny.write("value.h", "#include <deep.h>\n")
    module = jit_loader.load(
        "tiny", ["module.cpp", "other.cpp"], extra_include_paths=["include"], verbose=False
    )
    assert module.value() == 107


def test_arguments_are_not_modified_and_empty_ones_are_ignored(tiny):
    lists = {name: [] for name in ("extra_cflags", "extra_ldflags", "extra_include_paths")}
    sources = tiny.sources
    assert jit_loader.load("tiny", sources, build_directory="", **lists).value() == 101
    assert sources == tiny.sources
    assert not any(lists.values())
    assert inline_module(1, cuda_sources="").value() == 1
    assert not jit_loader.loaded("inlined").with_cuda


def test_verbose_prints_commands_and_warnings(tiny, capfd):
    tiny.load(verbose=False)
    assert "-fPIC" not in capfd.readouterr().out
    tiny.write("value.h", "#define VALUE 2\n#warning look here\n")
    tiny.load(verbose=True)
    printed = capfd.readouterr().out
    assert "-fPIC" in printed
    assert "look here" in printed


@pytest.mark.nvcc
def test_verbose_prints_reports_of_ptxas_only_if_a_flag_asks_for_them(tiny, capfd):
    """The loader itself lets nvcc print them."""
    tiny.change_compiler("echo 'ptxas info    : Used 4 registers'; echo other")
    tiny.load(verbose=True, with_cuda=True)
    assert "ptxas" not in (printed := capfd.readouterr().out)
    assert "\nother\n" in printed
    flags = {"extra_cflags": ["-O1"], "extra_cuda_cflags": ["-O3 -Xptxas -v"]}
    tiny.load(verbose=True, with_cuda=True, **flags)
    assert "ptxas info    : Used 4 registers\n" in capfd.readouterr().out


def test_unknown_name_of_loaded_names_what_is_loaded(tiny):
    tiny.load()
    with pytest.raises(KeyError, match=r"no extension 'unknown'; it has loaded: .*tiny"):
        jit_loader.loaded("unknown")


def test_standalone_program_is_built_and_cached(cache, tmp_path):
    source = tmp_path / "program.cpp"
    source.write_text('#include <cstdio>\nint main() { std::puts("standalone"); }\n')
    options = {"is_python_module": False, "is_standalone": True}
    path = jit_loader.load("my-program.1", [source], **options)
    assert subprocess.check_output([path], text=True) == "standalone\n"
    assert jit_loader.load("my-program.1", [source], **options) == path
    assert not jit_loader.loaded("my-program.1").compiled
    options["build_directory"] = str(tmp_path / "build")
    path = jit_loader.load("program", [source], **options)
    assert path == str(tmp_path / "build" / "program")
    assert subprocess.check_output([path], text=True) == "standalone\n"
    with pytest.raises(ValueError, match="mutually exclusive"):
        jit_loader.load("my_program", [source], is_standalone=True)


CLASS = """\
#include <pybind11/pybind11.h>
extern "C" long other(void);
struct Held { long value = other(); };
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  pybind11::class_<Held>(m, "Held").def(pybind11::init<>()).def_readonly("value", &Held::value);
}
"""


@pytest.mark.slow
def test_changed_module_with_classes_is_refused_and_loads_in_a_new_process(tiny, python):
    """pybind11 registers a class only once in a process and otherwise raises ImportError."""
    sources = [str(tiny.write("held.cpp", CLASS)), tiny.sources[1]]
    module = jit_loader.load("held", sources)
    assert module.Held.__module__ == "held"
    tiny.write("other.cpp", 'extern "C" long other(void) { return 200; }\n')
    for _ in range(2):
        with pytest.raises(ImportError, match="held defines Python classes") as error:
            jit_loader.load("held", sources)
        assert isinstance(error.value, jit_loader.CompileError)
        assert module.Held().value == 100, "the old module stays active"
    tiny.compiled()
    script = f"import jit_loader; print(jit_loader.load('held', {sources!r}).Held().value)"
    assert python("-c", script, check=True).stdout == "200\n"
    assert tiny.compiled() == [], "the refused build is in the cache"
    with pytest.raises(ImportError, match=r"Restart (Python|the kernel)"):
        jit_loader.load("held", sources)
    tiny.write("other.cpp", 'extern "C" long other(void) { return 100; }\n')
    assert jit_loader.load("held", sources) is module


def test_cuda_is_refused_if_pytorch_lacks_it(tiny, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    error = tiny.error(RuntimeError, match="build without CUDA", with_cuda=True)
    assert isinstance(error, OSError), "as torch.utils.cpp_extension.load raises"
    assert tiny.compiled() == []


def test_changed_inline_source_is_another_build(cache):
    assert inline_module(1).value() == 1
    assert inline_module(2).value() == 2
    assert inline_module(1).value() == 1
    assert not jit_loader.loaded("inlined").compiled
    texts = ["#define THREE 3", binding("inlined", value="THREE")]
    assert jit_loader.load_inline("inlined", texts, no_implicit_headers=True).value() == 3


def test_inline_source_that_was_deleted_is_written_again(cache, tmp_path):
    inline_module(1)
    for path in (tmp_path / "cache").rglob("main.cpp"):
        path.unlink()
    assert inline_module(1).value() == 1
    assert not jit_loader.loaded("inlined").compiled


@pytest.mark.slow
def test_inline_functions_are_bound(cache):
    functions = {"twice": 'Doubles "x\\".\nNot more.\\'}
    module = jit_loader.load_inline(
        "bound",
        ["#include <pybind11/pybind11.h>", "int twice(int x) { return 2 * x; }"],
        functions=functions,
        no_implicit_headers=True,
        with_pytorch_error_handling=False,
    )
    assert module.twice(4) == 8
    assert module.twice.__doc__.rstrip().endswith(functions["twice"])


@pytest.mark.parametrize("functions", [None, "f", ["f", "g"]])
def test_inline_texts_equal_those_of_pytorch(tmp_path, functions):
    names, written = pytorch.copy_of_names(), {}
    names["_maybe_write"] = lambda path, text: written.update({os.path.basename(path): f"{text}\n"})
    names["_jit_compile"] = names["remove_extension_h_precompiler_headers"] = lambda *_, **__: None
    options = {"functions": functions, "build_directory": str(tmp_path)}
    names["load_inline"]("name", "int f();", "__global__ void k() {}", **options)
    texts = source_texts(["int f();"], ["__global__ void k() {}"], functions, True, False, False)
    assert texts == written


def test_unsupported_builds_are_passed_to_pytorch(monkeypatch):
    calls, module = [], pytorch.cpp_extension()
    record = lambda name, **arguments: calls.append(arguments)  # noqa: E731
    for function in ("load_before_jit_loader", "load_inline_before_jit_loader"):
        monkeypatch.setattr(module, function, record, raising=False)
    jit_loader.load("sycl", ["kernel.sycl"], extra_sycl_cflags=["-O2"])
    jit_loader.load("sycl", ["kernel.cpp"], with_sycl=True)
    jit_loader.load_inline("sycl", "", sycl_sources="text")
    monkeypatch.setattr(torch.version, "hip", "6.4")
    jit_loader.load("rocm", ["kernel.cu"])
    assert len(calls) == 4


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_other_systems_have_pytorchs_load_and_no_ops(system, python):
    script = f"""
import os, sys, torch, torch.utils.cpp_extension as pytorch
del os.sched_getaffinity
sys.platform = {system!r}
if sys.platform == "win32":
    del os.register_at_fork, os.uname
    sys.modules["fcntl"] = None
import jit_loader
pytorch.load = lambda name, **arguments: "PyTorch's"
assert jit_loader.load("name", ["source.cpp"]) == "PyTorch's"
try:
    jit_loader.load_op("add2")
except RuntimeError as error:
    print(error)
"""
    printed = python("-c", script, check=True).stdout
    assert printed.startswith(f"add2: ops are built on Linux only, and this is {system}; ")
