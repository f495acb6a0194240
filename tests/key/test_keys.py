"""A change to any one part of a build's key causes another build, and undoing it is a hit.

Each part is tested with a memo, which must notice the change by its stats, and without a memo, as
in a copy of the cache, which compares contents.
"""

import os
import re
import shutil
import subprocess
import time

import pytest
import torch

import jit_loader
from _jit_loader import key
from _jit_loader.cache import FORMAT, stamp
from _jit_loader.key import CUDA_SETTINGS, PATH_LISTS, SETTINGS, digests, machine, toolchain
from _jit_loader.key.request import Request
from tests.support.extension import make_memos_use_os_stat, program, write


class Library:
    """The extension 'small', a library of one source that compiles fast and includes value.h."""

    def __init__(self, folder):
        self.folder = folder
        self.cache = folder / "cache"
        self.source = self.write("small.cpp", '#include "value.h"\n')
        self.header = self.write("value.h", "")
        self.options = {}

    def write(self, name, text):
        return write(self.folder / name, text)

    def load(self):
        """Returns the path of the library, and whether this call compiled it."""
        path = jit_loader.load("small", self.source, is_python_module=False, **self.options)
        return path, jit_loader.loaded("small").compiled

    def load_and_settle(self):
        """Returns the same as load(), after the memo trusts all its stats."""
        first = self.load()
        time.sleep(0.05)
        assert self.load() == (first[0], False)
        return first

    def delete_memos(self):
        shutil.rmtree(self.cache / FORMAT / "memos", ignore_errors=True)  # none of young files

    def assert_matters(self, change, undo):
        first, _ = self.load_and_settle()
        change()
        second, compiled = self.load_and_settle()
        assert compiled
        assert second != first
        undo()
        assert self.load() == (first, False), "going back is a hit"
        change()
        self.delete_memos()
        assert self.load() == (second, False), "a hit by content"
        undo()
        self.delete_memos()
        assert self.load() == (first, False), "a hit by content"

    def assert_does_not_matter(self, change):
        first, _ = self.load_and_settle()
        change()
        assert self.load() == (first, False)
        self.delete_memos()
        assert self.load() == (first, False)


@pytest.fixture
def small(cache, tmp_path, monkeypatch):
    monkeypatch.setattr("_jit_loader.cache.SETTLED_NS", 20_000_000)
    for name in ("CXX", "CC", *SETTINGS, *PATH_LISTS):
        monkeypatch.delenv(name, raising=False)
    return Library(tmp_path)


class ChangedStat:
    """The stat of a file, with another inode number."""

    def __init__(self, status):
        self._status = status

    def __getattr__(self, name):
        return getattr(self._status, name) + (name == "st_ino")


@pytest.fixture
def look_changed(monkeypatch):
    """look_changed(pattern) returns (change, undo), which fake a change to installed files."""
    patterns = []
    real_stat, real_digest = os.stat, digests.read_digest

    def matches(path):
        return isinstance(path, str) and any(re.search(pattern, path) for pattern in patterns)

    def stat(path, **options):
        found = real_stat(path, **options)
        return ChangedStat(found) if matches(path) else found

    def read_digest(path):
        found = real_digest(path)
        return found[::-1] if found and matches(path) else found

    monkeypatch.setattr(os, "stat", stat)
    make_memos_use_os_stat(monkeypatch)
    monkeypatch.setattr(digests, "read_digest", read_digest)
    return lambda pattern: (lambda: patterns.append(pattern), patterns.clear)


def script(path, text):
    return program(path, f"#!/bin/sh\n{text}\n")


def put_on_path(monkeypatch, folder):
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("PATH", str(folder) + os.pathsep + os.environ["PATH"])


# Files


@pytest.mark.parametrize("kind", ["own", "system", "included by a flag"])
def test_header_is_part_of_the_key(small, monkeypatch, kind):
    header = small.write("include/of_the_system.h", "// one\n")
    if kind == "own":
        header = small.header
    elif kind == "system":  # -MMD leaves system headers out of depfiles
        monkeypatch.setenv("CPLUS_INCLUDE_PATH", str(header.parent))
        small.source.write_text("#include <of_the_system.h>\n")
    else:
        small.options = {"extra_cflags": ["-include", str(header)]}
    before = header.read_text()
    small.assert_matters(lambda: header.write_text("// two\n"), lambda: header.write_text(before))


@pytest.mark.parametrize(
    "file",
    [
        pytest.param("torch/headeronly/macros/Export.h$", id="a header"),
        pytest.param("lib/libc10.so$", id="a library"),
        pytest.param("utils/cpp_extension.py$", id="the module that chooses the flags"),
    ],
)
def test_file_of_pytorch_is_part_of_the_key(small, look_changed, file):
    small.source.write_text("#include <torch/headeronly/macros/Export.h>\n")
    small.assert_matters(*look_changed(file))


@pytest.mark.parametrize("name", ["cc1plus", "as", "ld", "g++"])
def test_program_behind_a_wrapper_is_part_of_the_key(
    small, look_changed, tmp_path, monkeypatch, name
):
    """update-alternatives replaces g++ and leaves the wrapper, c++, unchanged."""
    put_on_path(monkeypatch, tmp_path / "bin")
    script(tmp_path / "bin" / "c++", 'exec g++ "$@"')
    path = subprocess.check_output(["g++", f"-print-prog-name={name}"], text=True).strip()
    small.assert_matters(*look_changed(f"^{re.escape(shutil.which(path))}$"))


@pytest.mark.parametrize("name", ["c++", "as", "ld"])
@pytest.mark.parametrize("how", ["changes", "comes first on PATH"])
def test_program_on_path_is_part_of_the_key(small, tmp_path, monkeypatch, name, how):
    put_on_path(monkeypatch, tmp_path / "bin")
    path = tmp_path / "bin" / name
    text = f'exec {shutil.which(name)} "$@"'
    if how == "changes":
        script(path, text)
        small.assert_matters(lambda: script(path, text + " # new"), lambda: script(path, text))
    else:
        small.assert_matters(lambda: script(path, text), path.unlink)


def test_another_path_to_the_same_compiler_is_a_hit(small, tmp_path, monkeypatch):
    small.assert_does_not_matter(lambda: put_on_path(monkeypatch, tmp_path / "empty"))


def test_linker_that_a_flag_names_is_part_of_the_key(small, look_changed):
    if not shutil.which("ld.gold"):
        pytest.skip("there is no ld.gold")
    small.options = {"extra_ldflags": ["-fuse-ld=gold"]}
    small.assert_matters(*look_changed("ld.gold$"))


# Arguments and environment variables


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("extra_cflags", ["-DONE"], ["-DTWO"]),
        ("extra_cflags", ["-DONE", "-O1"], ["-O1", "-DONE"]),
        ("extra_ldflags", ["-Wl,-O1"], ["-Wl,-O2"]),
        ("extra_include_paths", ["/usr/include/c++"], ["/usr/lib"]),
    ],
    ids=str,
)
def test_argument_is_part_of_the_key(small, name, one, other):
    small.options = {name: one}
    small.assert_matters(
        lambda: small.options.update({name: other}), lambda: small.options.update({name: one})
    )


def test_sources_are_part_of_the_key(small):
    first, more = small.source, small.write("more.cpp", "")

    def set_sources(*sources):
        small.source = list(sources)

    small.assert_matters(lambda: set_sources(first, more), lambda: set_sources(first))


@pytest.mark.parametrize(
    "options",
    [{"verbose": True}, {"keep_intermediates": False}, {"extra_cflags": []}, {"with_cuda": False}],
    ids=str,
)
def test_argument_without_effect_is_not_part_of_the_key(small, options):
    small.assert_does_not_matter(lambda: small.options.update(options))


def test_variable_of_a_wrapper_is_part_of_the_key(small, tmp_path, monkeypatch):
    """No file and no flag of the wrapper changes, only what it adds to the command."""
    put_on_path(monkeypatch, tmp_path / "bin")
    script(tmp_path / "bin" / "c++", f'exec {shutil.which("g++")} $MY_FLAGS "$@"')
    monkeypatch.setenv("JIT_LOADER_KEY_VARIABLES", ":MY_FLAGS:OTHER")
    small.assert_matters(
        lambda: monkeypatch.setenv("MY_FLAGS", "-DOTHER"), lambda: monkeypatch.delenv("MY_FLAGS")
    )


@pytest.mark.parametrize("name", ["SOME_VARIABLE", "LANG", "MAX_JOBS", "TORCH_CUDA_ARCH_LIST"])
def test_environment_variable_without_effect_is_not_part_of_the_key(small, monkeypatch, name):
    small.assert_does_not_matter(lambda: monkeypatch.setenv(name, "7"))


# The machine


def test_processor_is_part_of_the_key_only_with_march_native(small, monkeypatch):
    """Another machine that shares the cache could not run the code."""
    before = machine.processor, key.boot

    def set_machine(processor, boot):
        monkeypatch.setattr("_jit_loader.key.request.processor", processor)
        monkeypatch.setattr(key, "boot", boot)

    def use_another_machine():
        set_machine(lambda: ["another"], lambda: "another")

    small.assert_does_not_matter(use_another_machine)
    set_machine(*before)
    small.options = {"extra_cflags": ["-march=native"]}
    small.assert_matters(use_another_machine, lambda: set_machine(*before))
    set_machine(*before)
    small.options = {"extra_cflags": ["-I/home/me/alternative/include", "-DNOT=native_code"]}
    small.assert_does_not_matter(use_another_machine)


# CUDA: keys and searches, which need no nvcc


@pytest.fixture
def cuda(small, tmp_path, monkeypatch):
    """Returns small with a CUDA source and a fake toolkit."""
    small.source = small.write("small.cu", "")
    for name in ("CUDA_HOME", "CUDA_PATH", *CUDA_SETTINGS):
        monkeypatch.delenv(name, raising=False)
    script(tmp_path / "toolkit" / "bin" / "nvcc", "")  # it is never run
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    return small


def keys_of(extension):
    """Returns the key of the memo and the key of the request."""
    made = Request("small", [str(extension.source)], **extension.options)
    return key.memo_paths("load", extension.options), made.key


@pytest.mark.parametrize("name", [*PATH_LISTS, *SETTINGS, *CUDA_SETTINGS])
def test_setting_is_part_of_both_keys(cuda, monkeypatch, name):
    before = keys_of(cuda)
    monkeypatch.setenv(name, "9.0")
    assert all(now != then for now, then in zip(keys_of(cuda), before))
    monkeypatch.delenv(name)
    assert keys_of(cuda) == before


@pytest.mark.parametrize(
    "names",
    [
        *("torch.__version__", "torch.version.git_version", "torch.version.cuda"),
        "torch._C._GLIBCXX_USE_CXX11_ABI",
        "_jit_loader.key.EXTENSION_SUFFIXES _jit_loader.key.request.EXTENSION_SUFFIXES",
    ],
)
def test_pytorch_and_python_are_part_of_both_keys(cuda, monkeypatch, names):
    before = keys_of(cuda)
    for name in names.split():
        monkeypatch.setattr(name, [".cpython-399.so"] if "SUFFIXES" in name else "99.0")
    assert all(now != then for now, then in zip(keys_of(cuda), before))


def test_nvcc_flags_are_part_of_both_keys_even_if_a_program_changes_pytorchs(cuda, monkeypatch):
    from torch.utils import cpp_extension

    before = keys_of(cuda)
    cuda.options = {"extra_cuda_cflags": ["-O1"]}
    assert all(now != then for now, then in zip(keys_of(cuda), before))
    cuda.options = {}
    flags = [flag for flag in cpp_extension.COMMON_NVCC_FLAGS if "HALF" not in flag]
    monkeypatch.setattr(cpp_extension, "COMMON_NVCC_FLAGS", flags)
    assert all(now != then for now, then in zip(keys_of(cuda), before))


def test_nvcc_flags_of_the_key_equal_pytorchs(cuda):
    """A process that has not imported torch.utils.cpp_extension requests the same build."""
    from torch.utils import cpp_extension

    assert cpp_extension.COMMON_NVCC_FLAGS == key.COMMON_NVCC_FLAGS


def test_gpus_are_part_of_the_key_unless_architectures_are_named(cuda, monkeypatch):
    def set_gpus(names, architectures):
        monkeypatch.setattr(key, "gpus", lambda: names)
        fake = machine.Machine("AVX2", architectures)
        monkeypatch.setattr(toolchain, "this_machine", lambda: fake)

    set_gpus(["nvidia0"], ["9.0"])
    before = keys_of(cuda)
    set_gpus(["nvidia0", "nvidia1"], ["8.0", "9.0"])
    assert all(now != then for now, then in zip(keys_of(cuda), before))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    named = keys_of(cuda)
    set_gpus([], [])
    assert keys_of(cuda) == named


def test_cuda_home_is_part_of_the_key(cuda, tmp_path, monkeypatch):
    before, programs = keys_of(cuda)[0], toolchain.programs(with_cuda=True)
    script(tmp_path / "another" / "bin" / "nvcc", "")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "another"))
    assert keys_of(cuda)[0] != before
    assert toolchain.programs(with_cuda=True)["nvcc"] != programs["nvcc"]


@pytest.mark.parametrize("name", ["nvcc", "gcc"])
def test_cuda_program_that_appears_first_on_path_is_used(cuda, tmp_path, monkeypatch, name):
    monkeypatch.delenv("CUDA_HOME")
    put_on_path(monkeypatch, tmp_path / "bin")
    before = stamps_of_searched_paths()
    role = {"nvcc": "nvcc", "gcc": "host"}[name]
    path = script(tmp_path / "bin" / name, "")
    assert toolchain.programs(with_cuda=True)[role] == str(path)
    assert before[str(path)] is None, "the memo records that it is absent"


def test_nvcc_that_pip_installs_later_is_noticed(cuda, tmp_path, monkeypatch):
    """nvidia/cu13 exists already: it has PyTorch's libraries, and nvcc is another package."""
    monkeypatch.delenv("CUDA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(toolchain, "packages_folder", lambda: str(tmp_path / "packages"))
    real, here = toolchain._is_executable, str(tmp_path)
    # A toolkit in /usr/local/cuda is ignored.
    monkeypatch.setattr(toolchain, "_is_executable", lambda p: p.startswith(here) and real(p))
    monkeypatch.setattr(torch.version, "cuda", "99.0")
    before = stamps_of_searched_paths()
    script(tmp_path / "packages" / "nvidia" / "cu99" / "bin" / "nvcc", "")
    assert stamps_of_searched_paths() != before


def stamps_of_searched_paths():
    return {path: stamp(path) for path in toolchain.looked_at(with_cuda=True)}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs an x86-64 processor")
@pytest.mark.parametrize(("name", "level"), [("AVX2", "3"), ("AVX512", "4"), ("DEFAULT", "2")])
def test_flags_have_the_level_of_the_processor(name, level):
    assert toolchain.cpu_flags(machine.Machine(name, [])) == [f"-march=x86-64-v{level}"]


def test_machine_and_its_capability_are_part_of_the_key_of_a_memo(monkeypatch):
    before = key.memo_paths("load_op", [])
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    with_capability = key.memo_paths("load_op", [])
    monkeypatch.setattr(key, "boot", lambda: "another machine")
    assert before != with_capability != key.memo_paths("load_op", [])


@pytest.mark.slow
@pytest.mark.nvcc
@pytest.mark.parametrize("file", ["/cuda_runtime.h$", "/cicc$", "/ptxas$", "/libdevice.10.bc$"])
def test_file_of_the_cuda_toolkit_is_part_of_the_key(
    small, look_changed, tmp_path, monkeypatch, file
):
    """ccache calls nvcc, as PyTorch's documentation suggests."""
    ccache = script(tmp_path / "bin" / "ccache", 'exec "$@"')
    monkeypatch.setenv("PYTORCH_NVCC", f"{ccache} {toolchain.nvcc_path()}")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0")
    small.source = small.write("small.cu", "__global__ void kernel() {}\n")
    small.assert_matters(*look_changed(file))
