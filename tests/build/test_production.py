"""Tests the settings for production: no compilation, a time limit for compilers, line numbers."""

import re
from pathlib import Path

import pytest

import jit_loader
from _jit_loader.cache import cache_folder


@pytest.fixture
def serving(tiny, monkeypatch):
    """Returns tiny with a method forbid_compilation(), which sets JIT_LOADER_NO_COMPILE."""

    def forbid_compilation():
        tiny.compiled()
        monkeypatch.setenv("JIT_LOADER_NO_COMPILE", "1")

    tiny.forbid_compilation = forbid_compilation
    return tiny


def test_miss_names_the_difference_and_compiles_nothing(serving):
    serving.load()
    serving.forbid_compilation()
    serving.write("value.h", "#define VALUE 2\n")
    first, reason, advice = str(serving.error(RuntimeError)).splitlines()
    assert first.startswith("tiny has to be compiled, but JIT_LOADER_NO_COMPILE is set")
    assert reason.strip() == "value.h changed"
    assert "jit_loader export tiny --out DIR" in advice
    assert serving.compiled() == []
    serving.write("value.h", "#define VALUE 1\n")
    assert serving.value() == 101


def test_miss_names_the_difference_from_a_build_in_a_shared_cache(serving, tmp_path, monkeypatch):
    serving.load()
    monkeypatch.setenv("JIT_LOADER_READONLY_CACHES", str(Path(cache_folder()).parent))
    monkeypatch.setenv("JIT_LOADER_CACHE", str(tmp_path / "empty"))
    serving.forbid_compilation()
    with pytest.raises(RuntimeError, match=r"C\+\+ flags: -DMORE was added\n.* paths: a was added"):
        serving.load(extra_cflags=["-DMORE"], extra_include_paths=[str(serving.folder / "a")])
    assert serving.value() == 101


def test_first_load_of_a_name_is_refused_and_writes_nothing(serving):
    serving.forbid_compilation()
    serving.error(RuntimeError, match="it has never been built")
    assert not Path(cache_folder(), "tiny").exists()


def test_setting_of_0_allows_compilation(serving, monkeypatch):
    serving.forbid_compilation()
    monkeypatch.setenv("JIT_LOADER_NO_COMPILE", "0")
    assert serving.value() == 101


def test_slow_compiler_is_ended_and_its_file_is_named(tiny, monkeypatch, running_programs):
    monkeypatch.setenv("JIT_LOADER_COMPILE_TIMEOUT", "1.5")
    tiny.change_compiler('case "$*" in *other.cpp*) sleep 60;; esac')
    raised = tiny.error()
    first = str(raised).splitlines()[0]
    assert "other.cpp: its compiler did not finish" in first
    assert "JIT_LOADER_COMPILE_TIMEOUT=1.5 seconds" in first
    assert raised.file == str(tiny.folder / "other.cpp")
    assert running_programs() == []
    tiny.restore_compiler()
    assert tiny.value() == 101


def test_error_of_another_file_is_reported_instead_of_the_timeout(tiny, monkeypatch):
    monkeypatch.setenv("JIT_LOADER_COMPILE_TIMEOUT", "0.5")
    tiny.write("module.cpp", "broken")
    tiny.change_compiler('case "$*" in *other.cpp*) sleep 60;; esac')
    tiny.error(match=r"module\.cpp:1: error: ")


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan"])
def test_invalid_timeout_is_refused_before_anything_is_compiled(tiny, monkeypatch, text):
    monkeypatch.setenv("JIT_LOADER_COMPILE_TIMEOUT", text)
    message = f"JIT_LOADER_COMPILE_TIMEOUT: '{text}' is not a positive number of seconds"
    tiny.error(ValueError, match=re.escape(message))
    assert tiny.compiled() == []


KERNEL = """\
__global__ void write(long* to) { *to = 42; }
extern "C" long other(void) { write<<<1, 1>>>(nullptr); return 0; }
"""


@pytest.mark.slow
@pytest.mark.nvcc
def test_builds_with_line_numbers_are_separate(tiny, monkeypatch):
    sources = [str(tiny.folder / "module.cpp"), str(tiny.write("kernel.cu", KERNEL))]
    flags = {"extra_cuda_cflags": ["--no-compress"]}
    plain = jit_loader.load("tiny", sources, **flags).__file__
    monkeypatch.setenv("JIT_LOADER_LINEINFO", "1")
    with_lines = jit_loader.load("tiny", sources, **flags).__file__
    has_lines = [b".debug_line" in Path(path).read_bytes() for path in (plain, with_lines)]
    assert has_lines == [False, True]
    tiny.compiled()
    monkeypatch.delenv("JIT_LOADER_LINEINFO")
    assert jit_loader.load("tiny", sources, **flags).__file__ == plain
    assert tiny.compiled() == []
