"""A hit only looks: nothing is run, locked, written or imported for it."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

HIT = """
import os, sys
import torch
before = set(sys.modules)
import jit_loader
assert jit_loader.load("tiny", {sources!r}).value() == 101
assert not jit_loader.loaded("tiny").compiled
print(*sorted(set(sys.modules) - before))
"""


def run_hit(tiny, **environment):
    """Loads the extension in a new process; returns the names of the modules it imported."""
    result = subprocess.run(
        [sys.executable, "-c", HIT.format(sources=tiny.sources)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "JIT_LOADER_QUIET": "0", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == "", "a hit says nothing"
    return result.stdout.split()


def test_hit_in_a_new_process_imports_nothing_heavy(tiny):
    tiny.settle()
    imported = run_hit(tiny)
    heavy = {"torch.utils.cpp_extension", "setuptools", "rich", "filelock", "subprocess", "fcntl"}
    assert not heavy.intersection(imported)
    assert not [name for name in imported if name.startswith(("rich.", "setuptools."))]
    modules = {"cache", "drop_in", "loading", "memo", "modules"}
    assert {name for name in imported if "_jit_loader." in name} == {
        f"_jit_loader.{module}" for module in modules
    }


def test_hit_runs_no_program(tiny, monkeypatch):
    tiny.load()
    for function in ("posix_spawn", "fork", "execve"):
        monkeypatch.setattr(os, function, lambda *_, **__: pytest.fail("a program was started"))
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a program was started"))
    tiny.load()


def test_hit_without_any_compiler_or_ninja(tiny, tmp_path):
    tiny.load()
    empty = tmp_path / "empty"
    empty.mkdir()
    run_hit(tiny, PATH=str(empty))


def test_hit_in_a_cache_that_cannot_be_written(tiny, tmp_path, monkeypatch):
    tiny.load()
    tiny.compiled()
    before = _snapshot(tmp_path / "cache")

    def read_only(path, data):
        raise OSError(errno.EROFS, "Read-only file system", path)

    # Modes do not keep root, as whom tests may run, from writing.
    monkeypatch.setattr("_jit_loader.store.write_whole", read_only)
    assert tiny.value() == 101
    assert tiny.compiled() == []
    assert _snapshot(tmp_path / "cache") == before


def test_memo_that_is_damaged_is_no_harm(tiny, tmp_path):
    tiny.settle()
    tiny.compiled()
    memos = list((tmp_path / "cache").rglob("memos/*"))
    assert memos
    for memo in memos:
        for damage in (b"", b"\0" * 100, memo.read_bytes()[:-10]):
            memo.write_bytes(damage)
            assert tiny.value() == 101
    assert tiny.compiled() == []


def _snapshot(folder):
    return sorted((str(p), p.stat().st_mtime_ns) for p in folder.rglob("*"))
