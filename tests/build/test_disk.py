"""A full or read-only disk gives a clear error and leaves nothing to clean up.

Each test mounts a private file system in a child process.
"""

import pytest

import jit_loader
from tests.support.extension import inline_module
from tests.support.mounts import MS_BIND, MS_RDONLY, MS_REMOUNT, mount


@pytest.mark.slow
def test_disk_that_is_full_at_any_step_is_reported_and_can_be_enlarged(
    tiny, with_mounts, in_process, tmp_path
):
    """Tries disks of growing size: each gives a clear error, and works once it is enlarged."""

    def fill_and_enlarge():
        messages = []
        for kilobytes in range(8, 400, 12):
            mount("none", tmp_path / "cache", "tmpfs", 0, f"size={kilobytes}k")
            result = in_process(tiny.value)
            if result == 101:
                break
            assert isinstance(result, (OSError, jit_loader.CompileError))
            messages.append(str(result))
            mount("none", tmp_path / "cache", "tmpfs", MS_REMOUNT, "size=10m")
            assert in_process(tiny.value) == 101
            assert tiny.incomplete() == []
        return messages

    messages = with_mounts(fill_and_enlarge)
    assert len(messages) >= 3
    for text in messages:
        assert "No space left on device" in text, text
        assert "JIT_LOADER_CACHE" in text or "the disk is full" in text, text


def test_cache_on_a_file_system_that_makes_no_folders_is_an_error(tiny, monkeypatch):
    monkeypatch.setenv("JIT_LOADER_CACHE", "/proc/nowhere")
    tiny.error(OSError, match=r"cannot be written .* JIT_LOADER_CACHE")


def test_read_only_cache_serves_hits_and_refuses_builds(tiny, with_mounts, in_process, tmp_path):
    """A hit works; the error of a build says what to do."""

    assert in_process(tiny.value) == 101
    assert in_process(lambda: inline_module(5).value()) == 5

    def load_and_build():
        mount(str(tmp_path / "cache"), tmp_path / "cache", "", MS_BIND)
        mount("none", tmp_path / "cache", "", MS_BIND | MS_REMOUNT | MS_RDONLY)
        assert tiny.value() == 101
        tiny.write("value.h", "#define VALUE 2\n")
        assert inline_module(5).value() == 5
        for load in (tiny.load, lambda: inline_module(6)):
            with pytest.raises(OSError, match=r"cannot be written .* JIT_LOADER_CACHE"):
                load()

    with_mounts(load_and_build)
    assert in_process(tiny.value) == 102
