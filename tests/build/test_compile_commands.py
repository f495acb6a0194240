"""compile_commands.json has the command of each source of an op, and each build updates it."""

import concurrent.futures
import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import jit_loader
from _jit_loader import this_process
from tests.support.extension import ROOT, binding, write


class Project:
    """A project with the ops one, two and lock, a name that the cache must not use."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("one", "two", "lock"):
            header, check = f'#include "kernels/{name}.h"\n', "if (answer() != 42) return nullptr;"
            self.write(f"bindings/{name}.cpp", binding(name, header, check))
            self.write(f"kernels/{name}.h", "long answer();\n")
            self.write(f"kernels/{name}_cpu.cpp", "long answer() { return 42; }\n")
        self.path = folder / "compile_commands.json"

    def write(self, name, text):
        write(self.folder / name, text)

    def load(self, name, **options):
        return jit_loader.load_op(name, project=str(self.folder), **options)

    def entries(self):
        return json.loads(self.path.read_text())

    def files(self):
        return sorted(os.path.relpath(entry["file"], self.folder) for entry in self.entries())


@pytest.fixture
def project(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(this_process, "ops", {})  # forgets the ops after the test
    return Project(tmp_path / "project")


def test_commands_compile_and_write_nothing(project):
    project.load("one")
    assert project.files() == ["bindings/one.cpp", "kernels/one_cpu.cpp"]
    before = sorted(project.folder.rglob("*"))
    for entry in project.entries():
        words = [*shlex.split(entry["command"]), "-fsyntax-only"]
        subprocess.run(words, cwd=entry["directory"], check=True)
    assert sorted(project.folder.rglob("*")) == before


@pytest.mark.slow
@pytest.mark.nvcc
def test_command_of_a_cuda_source_is_valid(project):
    project.write("kernels/one.cu", "__global__ void nothing() {}\n")
    project.load("one")
    (entry,) = [entry for entry in project.entries() if entry["file"].endswith(".cu")]
    words = [*shlex.split(entry["command"]), "--dryrun"]
    subprocess.run(words, cwd=entry["directory"], check=True, capture_output=True)
    assert "-MF" not in words


def test_every_build_updates_its_own_entries(project):
    project.load("one")
    project.load("two")
    assert project.files() == [
        *("bindings/one.cpp", "bindings/two.cpp", "kernels/one_cpu.cpp", "kernels/two_cpu.cpp")
    ]
    project.load("one", extra_cflags=["-DMORE"])
    project.load("one", defines={"BLOCK": 64})
    with_flag = [entry["file"] for entry in project.entries() if "-DMORE" in entry["command"]]
    assert len(project.entries()) == 4
    assert all(Path(file).name.startswith("one") for file in with_flag)
    assert len(with_flag) == 2
    assert "BLOCK" not in project.path.read_text(), "a variant's commands are not written"
    (project.folder / "kernels" / "two_cpu.cpp").unlink()
    project.write("kernels/two.h", "inline long answer() { return 42; }\n")
    project.load("one")
    assert "kernels/two_cpu.cpp" in project.files()
    project.load("two")
    assert "kernels/two_cpu.cpp" not in project.files()


def test_build_with_the_same_commands_does_not_write_the_file(project):
    project.load("one")
    before = project.path.stat()
    # The binding's object is reused, so that ninja has no command for it.
    project.write("kernels/one_cpu.cpp", "long answer() { return 40 + 2; }\n")
    project.load("one")
    assert jit_loader.loaded("one").compiled
    assert project.path.stat().st_mtime_ns == before.st_mtime_ns
    assert len(project.entries()) == 2


def test_failed_build_writes_the_file(project):
    project.write("kernels/one_cpu.cpp", "long answer() { return ; }\n")
    with pytest.raises(jit_loader.CompileError):
        project.load("one")
    assert project.files() == ["bindings/one.cpp", "kernels/one_cpu.cpp"]


@pytest.mark.slow
def test_parallel_builds_keep_each_others_entries(project):
    with concurrent.futures.ThreadPoolExecutor() as executor:
        assert len(list(executor.map(project.load, ["one", "two", "lock"]))) == 3
    assert len(project.entries()) == 6


def test_entries_of_others_and_their_order_are_kept(project):
    """Another tool may list sources that are generated later."""
    others = [
        {"directory": str(project.folder), "file": file, "command": "c++ -c"}
        for file in ("z.cpp", "generated.cpp", "bindings/one.cpp", "a.cpp")
    ]
    project.path.write_text(json.dumps(others[:2]))
    project.load("one")
    project.path.write_text(json.dumps(project.entries() + others[2:]))
    project.load("one", extra_cflags=["-DMORE"])
    entries = project.entries()
    assert [*entries[:2], *entries[4:]] == others
    assert ["-DMORE" in entry["command"] for entry in entries[2:4]] == [True, True]


def test_symlinks_of_others_are_kept(project):
    project.load("one")
    project.path.rename(project.folder / "build.json")
    project.path.symlink_to("build.json")
    before = project.path.read_text()
    project.load("two")
    assert project.path.is_symlink()
    assert project.path.read_text() == before


@pytest.mark.parametrize("text", ["[", '[1, {"file": 1}]'])
def test_file_that_is_not_a_list_of_entries_is_kept(project, text):
    """A person may be editing the file."""
    project.path.write_text(text)
    project.load("one")
    assert project.path.read_text() == text


def test_load_writes_no_file(project, tmp_path):
    sources = [tmp_path / "other" / "src" / name for name in ("one.cpp", "one_cpu.cpp")]
    sources[0].parent.mkdir(parents=True)
    shutil.copy(project.folder / "bindings" / "one.cpp", sources[0])
    shutil.copy(project.folder / "kernels" / "one_cpu.cpp", sources[1])
    jit_loader.load("one", list(map(str, sources)), extra_include_paths=[str(project.folder)])
    assert [*(tmp_path / "other").rglob("*.json"), *project.folder.glob("*.json")] == []


def test_clangd_accepts_nvccs_flags(project):
    """With this project's .clangd. The source is C++: a .cu file would need an installed CUDA."""
    clangd = shutil.which("clangd") or pytest.skip("clangd is not installed")
    shutil.copy(ROOT / ".clangd", project.folder)
    flags = (
        "-ccbin g++ -gencode=arch=compute_90,code=sm_90 -gencode arch=compute_80,code=sm_80 "
        "--expt-relaxed-constexpr --compiler-options '-fPIC' -Xcompiler=-fno-gnu-unique -Xptxas -v "
        "-Xptxas=-v --use_fast_math -lineinfo -O3 -std=c++20"
    )
    entry = {
        "directory": str(project.folder),
        "command": f"nvcc {flags} -c kernels/one_cpu.cpp -o one.o",
        "file": "kernels/one_cpu.cpp",
    }
    project.path.write_text(json.dumps([entry]))
    check = [clangd, f"--check={project.folder}/kernels/one_cpu.cpp", "--check-completion=0"]
    said = subprocess.run(check, capture_output=True, text=True, check=False).stderr
    lines = [line.partition("] ")[2] for line in said.splitlines() if line.startswith("E[")]
    assert [line for line in lines if not line.strip().startswith("tweak: ")] == []
