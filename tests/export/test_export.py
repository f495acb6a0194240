"""`export` writes a folder of builds that a copy of the project loads without a compiler."""

import os
import re
import shutil
import time
from pathlib import Path

import pytest

import jit_loader
from _jit_loader.cache import FORMAT
from _jit_loader.commands import main
from _jit_loader.export.folder import COMPILING
from _jit_loader.key import digests, toolchain
from tests.support.extension import binding, program, write

WRAPPERS = {
    "one": "from jit_loader import load_op\n\nvalue = load_op('one').value\n",
    "two": "from bindings.one import value as one\nfrom jit_loader import load_op\n\n"
    "both = one() + load_op('two', extra_cflags=['-DVALUE=40']).value()\n",
}


def write_project(folder):
    """Writes a project in which the wrapper of two imports one and passes a macro to two.cpp."""
    for name, wrapper in WRAPPERS.items():
        write(folder / "bindings" / f"{name}.py", wrapper)
    for name in ("one", "two", "other"):
        write(
            folder / "bindings" / f"{name}.cpp",
            binding(name, f'#include "kernels/{name}.h"\n', value="VALUE"),
        )
        write(folder / "kernels" / f"{name}.h", "#define VALUE 2\n" if name == "one" else "\n")
    write(folder / "bindings" / "__init__.py", "")
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Exports ops for the oldest processors; returns (project, export, cache)."""
    folder = tmp_path_factory.mktemp("export")
    project, out, cache = write_project(folder / "project"), folder / "out", folder / "cache"
    arch = ["--arch", "x86-64-v2"] if toolchain.cpu_level() else []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        patch.setenv("JIT_LOADER_CACHE", str(cache))
        for name in COMPILING:
            patch.delenv(name, raising=False)
        patch.setenv("CC", "gcc")  # a compiler setting, which the nodes do not have
        assert main(["export", "one", "two", "--out", str(out), *arch]) == 0
    return project, out, cache


@pytest.fixture
def node(made, python, tmp_path):
    """node(script) runs it with copies of the project and of the export, without a compiler.

    The process behaves as on the oldest processor.
    """
    project = shutil.copytree(made[0], tmp_path / "elsewhere")
    export = shutil.copytree(made[1], tmp_path / "export")
    # A machine without a compiler can have a linker.
    linker = program(tmp_path / "bin" / "ld", "#!/bin/sh\n")

    def run(script, before="", **environment):
        environment = {
            **dict.fromkeys(COMPILING, ""),  # this machine's
            "PATH": str(linker.parent),
            "JIT_LOADER_CACHE": str(tmp_path / "cache"),
            "JIT_LOADER_READONLY_CACHES": str(export),
            **environment,
        }
        script = f"{OLDEST}\n{before}\n{script}"
        return python("-c", script, cwd=project, **environment)

    run.project, run.export, run.cache = project, export, tmp_path / "cache"
    return run


OLDEST = (
    "from _jit_loader.key import machine; machine.this_machine = lambda: machine.Machine('', [])"
)
USE = "import jit_loader, bindings.two as t; print(t.both, jit_loader.loaded('two').path)"


def test_ops_of_a_wrapper_are_loaded_without_a_compiler(node):
    time.sleep(2.1)  # no memo is written while a file is young
    for environment in ({}, {"CC": "gcc"}, {"JIT_LOADER_CACHE": "/proc/nothing"}):
        finished = node(USE, **environment)
        assert finished.stdout.startswith(f"42 {node.export}"), finished.stderr
    memos = list((node.cache / FORMAT / "memos").iterdir())
    assert memos, "without a memo, the next load reads all contents again"


def test_other_users_can_read_the_files(made):
    _, out, _ = made
    umask = os.umask(0)
    os.umask(umask)
    for path in [out, *out.rglob("*")]:
        assert path.stat().st_mode & 0o444 == 0o444 & ~umask, path


def test_export_for_another_processor_is_not_loaded_on_this_one(made, python):
    """The exported build is in this machine's cache too."""
    script = (
        "import os, jit_loader, bindings.two\n"
        "with open(os.path.dirname(jit_loader.loaded('two').path) + '/manifest.json') as file:\n"
        f"    assert '-march=x86-64-{toolchain.cpu_level()}' in file.read()"
    )
    if toolchain.cpu_level():
        python("-c", script, cwd=made[0], check=True, JIT_LOADER_CACHE=str(made[2]), CC="gcc")


REFUSALS = [
    ("import torch; torch.__version__ = '9.9.9'", "is 9.9.9"),
    (
        "import jit_loader; load = jit_loader.load_op; jit_loader.load_op = "
        "lambda name: load(name, extra_cflags=['-DMORE'])",
        "C++ flags: -DMORE was added",
    ),
]


@pytest.mark.parametrize(("before", "difference"), REFUSALS, ids=["PyTorch", "flags"])
def test_mismatch_is_named(node, before, difference):
    error = node("import bindings.one", before).stderr
    assert difference in error.partition(f"No build in {node.export} fits:\n")[2]
    assert "compiler 'c++' was not found" in error


def test_changed_source_and_missing_op_are_named(node):
    write(node.project / "kernels" / "one.h", "#define VALUE 3\n")
    error = node("import bindings.one").stderr
    assert f"No build in {node.export} fits:\n  kernels/one.h changed" in error
    error = node("import jit_loader; jit_loader.load_op('other')").stderr
    assert f"No build in {node.export} fits:\n  it has never been built" in error
    error = node("import bindings.one", JIT_LOADER_READONLY_CACHES="/not/there").stderr
    assert f"No build in /not/there fits:\n  /not/there/{FORMAT} does not exist\n" in error


@pytest.mark.parametrize("name", ["one.so", "manifest.json"])
def test_damaged_file_is_not_loaded(made, node, name):
    for path in (node.export / FORMAT / "one").rglob(name):
        data = path.read_bytes()
        middle = len(data) // 2
        path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    error = node("import bindings.one").stderr
    reason = "/one.so is damaged\n" if name == "one.so" else "\n  it has never been built\n"
    assert reason in error


def test_failed_export_keeps_the_other_builds(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(write_project(tmp_path / "project"))
    monkeypatch.setenv("JIT_LOADER_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "out"
    assert main(["export", "one", "other", "--out", str(out)]) == 1
    assert "bindings/other.cpp:3: error: " in capsys.readouterr().err
    assert [path.name for path in (out / FORMAT).iterdir()] == ["one"]
    assert main(["export", "one", "nothing", "--out", str(out)]) == 1
    err = capsys.readouterr().err
    assert "there is no op 'nothing'" in err
    assert "built" not in err, "no op is built before"


# --arch


@pytest.mark.parametrize("value", ["9.0a", "8.0+PTX", "Hopper", "x86-64-v9"])
def test_a_word_that_is_not_an_architecture_is_refused(value, capsys):
    with pytest.raises(SystemExit):
        main(["export", "--out", "out", "--arch", value])
    assert re.search(r"write GPUs as 8\.0.* set TORCH_CUDA_ARCH_LIST", capsys.readouterr().err)


@pytest.mark.slow
@pytest.mark.nvcc
def test_each_gpu_loads_its_own_build(tmp_path, monkeypatch, python):
    project = write_project(tmp_path / "project")
    write(project / "kernels" / "one.cu", "__global__ void kernel() {}\n")
    monkeypatch.chdir(project)
    monkeypatch.setenv("JIT_LOADER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")
    out = str(tmp_path / "out")
    assert main(["export", "one", "--out", out, "--arch", "8.0", "9.0", "cpu"]) == 0
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST")
    environment = {
        "PATH": "",
        "CUDA_HOME": "/nonexistent",
        "JIT_LOADER_CACHE": "/proc/nothing",  # no memo, which would be for this machine's real GPUs
        "JIT_LOADER_READONLY_CACHES": out,
    }
    found = {}
    for gpu in ("8.0", "9.0", "8.6"):
        script = (
            f"from _jit_loader.key import machine; machine.gpu_architectures = lambda: ['{gpu}']\n"
            "import jit_loader, bindings.one\n"
            "print(jit_loader.loaded('one').with_cuda, jit_loader.loaded('one').path)"
        )
        found[gpu] = python("-c", script, cwd=project, check=True, **environment).stdout
    assert [text.split()[0] for text in found.values()] == ["True", "True", "False"]
    assert len(set(found.values())) == 3


def test_digest_of_a_large_file_covers_all_of_it_but_not_its_path(tiny, monkeypatch, tmp_path):
    tiny.load()
    monkeypatch.setattr(digests, "WHOLE_FILE_LIMIT", 1000)
    library = Path(jit_loader.loaded("tiny").path)
    data = library.read_bytes()
    changed = library.with_name("copy")
    changed.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert digests.read_digest(str(changed)) != digests.read_digest(str(library))
    (built,) = (tmp_path / "cache").rglob("[!.]*/module.o")
    assert digests.read_digest(shutil.copy(built, tmp_path)) == digests.read_digest(str(built))
