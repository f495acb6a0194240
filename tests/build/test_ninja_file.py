"""The loader's build.ninja has PyTorch's flags, which a build takes from an earlier one."""

import shlex
import subprocess

import pytest

from _jit_loader.build.ninja import ninja_path
from _jit_loader.build.pytorch import ninja_file
from _jit_loader.build.pytorch.cpp_extension import copy_of_names
from _jit_loader.key import toolchain
from _jit_loader.key.digests import Digests
from _jit_loader.key.request import Request

LOAD = """
import sys
import jit_loader
print(jit_loader.load("tiny", {sources!r}).value())
print("torch.utils.cpp_extension" in sys.modules)
"""


@pytest.fixture
def load(tiny, python):
    """Edits and loads the extension in a new process; returns whether it imported cpp_extension."""
    values = iter(range(2, 100))

    def load(preamble=""):
        value = next(values)
        tiny.write("value.h", f"#define VALUE {value}\n")
        script = preamble + LOAD.format(sources=tiny.sources)
        printed, imported = python("-c", script, check=True).stdout.split()
        assert printed == str(value + 100)
        return imported == "True"

    return load


def test_edit_in_a_new_process_does_not_import_pytorchs_writer(load):
    assert load(), "the first build"
    assert not load()


@pytest.mark.slow
def test_flags_are_neither_kept_nor_used_if_the_program_has_changed_pytorchs_module(load, tiny):
    change = (
        "from torch.utils import cpp_extension as c\n"
        "paths = c.include_paths\n"
        "c.include_paths = lambda *args, **options: [*paths(*args, **options), '/nowhere']\n"
    )
    load(change)
    assert not list((tiny.folder.parent / "cache").rglob("flags.json"))
    load()
    tiny.calls_path.unlink()
    load(change)
    assert "-isystem /nowhere" in tiny.calls_path.read_text()


@pytest.fixture
def files(tiny, tmp_path):
    """Returns a function that returns the NinjaFile of a request, and PyTorch's own commands."""
    folder = tmp_path / "folder"
    folder.mkdir()

    def make(*more, **options):
        sources = [*tiny.sources, *(str(tiny.write(name, "")) for name in more)]
        request = Request("tiny", sources, **options)
        ours = ninja_file.make_ninja_file(request, str(folder), str(tmp_path), Digests())
        home = toolchain.cuda_home() if request.with_cuda else None
        for link in folder.iterdir():
            link.unlink()
        arguments = ninja_file._arguments(request, str(folder), home)
        names = copy_of_names()
        names.update(CUDA_HOME=home, _run_ninja_build=lambda *_, **__: None)
        arguments.update(sources=sources, build_directory=str(folder))
        names["_write_ninja_file_and_build_library"](**arguments)
        ask = [ninja_path(), "-t", "commands"]
        said = subprocess.run(ask, cwd=folder, capture_output=True, text=True, check=True).stdout
        return ours, list(map(shlex.split, said.splitlines()))

    return make


@pytest.mark.parametrize("source", ["more.cpp", pytest.param("more.cu", marks=pytest.mark.nvcc)])
def test_commands_are_pytorchs_with_what_the_loader_reads(files, monkeypatch, source):
    monkeypatch.setenv("TORCH_NO_COMPILER_WRAPPER", "1")
    flags = {
        "extra_cflags": ["-O2", "-DX='a b'"],
        "extra_cuda_cflags": ["-O1 -DY=$$HOME"],
        "extra_ldflags": ["-lm"],
        "extra_include_paths": ["/opt/a b"],
    }
    ours, theirs = files(source, **flags)
    commands = [ours.command(output) for output in ours.edges]
    assert len(commands) == len(theirs) == 4
    for output, command, expected in zip(ours.edges, commands, theirs):
        depfile = {"-MD", "-MMD", "-MF", f"{output}.d"}
        added = {"-Xptxas=-v", "-Wl,--trace", *depfile}
        kept = [word for word in command if word not in added]
        assert kept == [word for word in expected if word not in depfile]
        assert (f"-MD -MF {output}.d -c" in " ".join(command)) == (output != "tiny.so")


@pytest.mark.nvcc
def test_relocatable_device_code_of_a_variable_is_linked(files, monkeypatch):
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-lineinfo --relocatable-device-code=true")
    ours, _ = files("more.cu")
    assert ours.edges["device_link.o"] == ("device_link", ["more.cuda.o"])
    assert {"device_link.o", "-lcudadevrt"} <= set(ours.command("tiny.so"))


def test_objects_of_sources_with_similar_names_have_different_names():
    sources = ["/a/x.cpp", "/b/x.cpp", "/a/x.cu", "/a/x.cc", "/a/$y z.cpp", "/a/x_2.cpp"]
    names = ["x.cpp", "x_2.cpp", "x.cu", "x_3.cc", "_y_z.cpp", "x_2_2.cpp"]
    assert ninja_file.plain_names(sources) == names
