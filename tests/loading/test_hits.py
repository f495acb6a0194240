"""A hit runs no program, takes no lock, writes nothing and imports no slow module."""

import ctypes
import fcntl
import os
import shutil
import subprocess

import pytest

import jit_loader
from _jit_loader.cache import FORMAT
from _jit_loader.key import digests
from tests.support.extension import binding

HIT = """
import os, sys
import torch
before = set(sys.modules)
import jit_loader
assert jit_loader.load("tiny", {sources!r}).value() == 101
assert not jit_loader.loaded("tiny").compiled
print(*sorted(set(sys.modules) - before))
"""


@pytest.fixture
def run_hit(tiny, python):
    """Loads the extension in a new process; returns the names of the modules it imported.

    Before the load, the process executes the code in `first`.
    """

    def run(first="", **environment):
        script = first + HIT.format(sources=tiny.sources)
        finished = python("-c", script, check=True, JIT_LOADER_QUIET="0", **environment)
        assert finished.stderr == "", "a hit prints nothing"
        return finished.stdout.split()

    return run


def test_hit_in_a_new_process_imports_nothing_heavy(tiny, run_hit):
    tiny.settle()
    imported = run_hit()
    heavy = {"torch.utils.cpp_extension", "setuptools", "rich", "filelock", "subprocess", "fcntl"}
    assert not heavy.intersection(imported)
    assert not [name for name in imported if name.startswith(("rich.", "setuptools."))]
    modules = {"torch_api", "loading", "this_process", "cache", "key"}
    assert {name for name in imported if "_jit_loader." in name} == {
        f"_jit_loader.{module}" for module in modules
    }


def test_function_missing_from_a_replaced_library_is_an_import_error(tiny, in_process):
    """PyTorch's load binds all functions too. Calling an unbound one would end the process."""
    libraries = []
    for function in ("given", "another"):
        source = tiny.write(f"{function}.cpp", f'extern "C" long {function}(void) {{ return 5; }}')
        libraries.append(tiny.folder / function / "libgiven.so")
        libraries[-1].parent.mkdir()
        command = ["c++", "-shared", "-fPIC", "-Wl,-soname,libgiven.so", source, "-o"]
        subprocess.run([*command, libraries[-1]], check=True)
    tiny.write(
        "other.cpp",
        'extern "C" long given(void);\nextern "C" long other(void) { return given(); }\n',
    )

    def load_with(library):
        ctypes.CDLL(str(library))  # replaces LD_LIBRARY_PATH, which would need a new process
        return tiny.value(extra_ldflags=[f"-L{libraries[0].parent}", "-lgiven"])

    assert in_process(lambda: load_with(libraries[0])) == 6
    error = in_process(lambda: load_with(libraries[1]))
    assert isinstance(error, ImportError)
    assert "undefined symbol: given" in str(error)


@pytest.mark.parametrize("what", ["absent", "unreadable"])
def test_hit_needs_no_system_header(tiny, tmp_path, monkeypatch, what):
    """A cached build works without the headers it was made from, except the user's own."""
    is_users = lambda path: path.startswith(str(tiny.folder))  # noqa: E731
    monkeypatch.setattr("_jit_loader.build.inputs.records.user_file_filter", lambda *_: is_users)
    header = tmp_path / "system" / "of_the_system.h"
    header.parent.mkdir()
    header.write_text("#define VALUE 1\n")
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", str(header.parent))
    tiny.write("value.h", "#include <of_the_system.h>\n")
    assert tiny.value() == 101
    tiny.compiled()
    if what == "absent":
        header.unlink()
    else:
        real = digests.read_digest
        monkeypatch.setattr(
            digests, "read_digest", lambda path: None if path == str(header) else real(path)
        )
        shutil.rmtree(tmp_path / "cache" / FORMAT / "memos")
    for _ in range(2):
        assert tiny.value() == 101
    assert tiny.compiled() == []


def test_hit_in_a_copied_cache_uses_the_copy(tiny, tmp_path, monkeypatch):
    """The original may be deleted later or belong to another user."""
    tiny.settle()
    tiny.compiled()
    shutil.copytree(tmp_path / "cache", tmp_path / "copy")
    monkeypatch.setenv("JIT_LOADER_CACHE", str(tmp_path / "copy"))
    for _ in range(2):
        assert tiny.value() == 101
        assert jit_loader.loaded("tiny").path.startswith(str(tmp_path / "copy"))
    assert tiny.compiled() == []


def test_shared_cache_that_is_no_longer_named_is_not_used(tiny, tmp_path, monkeypatch):
    """Others can write to the shared cache, and the user no longer declares it trusted."""
    tiny.settle()
    tiny.compiled()
    monkeypatch.setenv("JIT_LOADER_READONLY_CACHES", str(tmp_path / "cache"))
    monkeypatch.setenv("JIT_LOADER_CACHE", str(tmp_path / "own"))
    tiny.settle()
    assert tiny.compiled() == []
    monkeypatch.delenv("JIT_LOADER_READONLY_CACHES")
    assert tiny.value() == 101
    assert jit_loader.loaded("tiny").path.startswith(str(tmp_path / "own"))


def test_hit_takes_no_lock_runs_no_program_and_writes_nothing(tiny, run_hit, tmp_path, monkeypatch):
    tiny.settle()
    before = _snapshot(tmp_path)
    monkeypatch.setattr(fcntl, "flock", lambda *_: pytest.fail("a lock was taken"))
    tiny.load()
    run_hit(PATH="/nowhere")
    assert _snapshot(tmp_path) == before


@pytest.fixture
def young(tiny, monkeypatch):
    """Returns the extension after its first build. All of its files stay young."""
    monkeypatch.setattr("_jit_loader.cache.SETTLED_NS", 600_000_000_000)
    assert tiny.value() == 101
    tiny.compiled()
    return tiny


def test_young_file_that_was_written_again_is_compiled(young, monkeypatch):
    """Two writes within one tick of the file system's clock leave the same stat."""
    stat, before = os.stat, os.stat(young.folder / "value.h")
    young.write("value.h", "#define VALUE 2\n")

    def stat_of_the_old(path, **options):
        now = stat(path, **options)
        return before if now.st_ino == before.st_ino else now

    monkeypatch.setattr(os, "stat", stat_of_the_old)
    assert young.value() == 102


def test_file_that_appears_in_a_young_folder_is_seen(young):
    """A value.h beside the source is included instead of the one on the include path."""
    young.write("include/value.h", "#define VALUE 3\n")
    (young.folder / "value.h").unlink()
    folder = str(young.folder / "include")
    assert young.value(extra_include_paths=[folder]) == 103
    status = os.stat(young.folder)
    young.write("value.h", "#define VALUE 4\n")
    os.utime(young.folder, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert young.value(extra_include_paths=[folder]) == 104


def test_files_that_are_old_enough_become_a_hit(young, tmp_path, monkeypatch):
    before = _snapshot(tmp_path / "cache")
    assert young.value() == 101
    assert _snapshot(tmp_path / "cache") == before, "a load from the cache writes no young memo"
    monkeypatch.setattr("_jit_loader.cache.SETTLED_NS", 0)
    assert young.value() == 101
    with monkeypatch.context() as context:
        context.setattr("_jit_loader.loading.find_build", lambda *_: pytest.fail("no hit"))
        assert young.value() == 101
    assert young.compiled() == []


def _snapshot(folder):
    return sorted((str(p), p.stat().st_mtime_ns) for p in folder.rglob("*"))


@pytest.mark.slow
def test_module_can_load_another_in_its_init_function(tiny, python):
    before = 'extern "C" PyObject* PyImport_ImportModule(const char*);\n'
    at_import = 'if (!PyImport_ImportModule("inner")) return nullptr;'
    outer = tiny.write("outer.cpp", binding("outer", before, at_import))
    tiny.write("inner.py", f"import jit_loader\njit_loader.load('tiny', {tiny.sources!r})\n")
    script = f"import torch, jit_loader; print(jit_loader.load('outer', [{str(outer)!r}]).__name__)"
    for _ in range(2):
        assert python("-c", script, cwd=tiny.folder, check=True).stdout == "outer\n"


@pytest.mark.slow
def test_symbols_are_global_if_the_program_sets_dlopen_flags(tiny, python):
    """sys.setdlopenflags has the same effect with PyTorch's load."""
    exported = 'extern "C" __attribute__((visibility("default"))) long given(void) { return 7; }\n'
    given = tiny.write("given.cpp", binding("given", exported))
    tiny.write("value.h", 'extern "C" long given(void);\n#define VALUE given()\n')
    script = (
        "import os, sys, torch, jit_loader\n"
        "sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)\n"
        f"jit_loader.load('given', [{str(given)!r}])\n"
        f"print(jit_loader.load('tiny', {tiny.sources!r}).value())\n"
    )
    for _ in range(2):
        assert python("-c", script, check=True).stdout == "107\n"
