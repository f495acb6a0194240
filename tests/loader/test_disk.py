"""Disks that are full or cannot be written: a clear error, and nothing to clean afterwards.

Each test makes a file system of its own, in a process that is thrown away.
"""

import ctypes
import os

import pytest

import jit_loader

CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18


def _libc(function, *arguments):
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, function)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{function}{arguments}")


def _mount(source, target, kind, flags=0, options=""):
    _libc("mount", source.encode(), str(target).encode(), kind.encode(), flags, options.encode())


def _own_mounts():
    """From here on what this process mounts is its own, and goes with it."""
    user, group = os.getuid(), os.getgid()
    _libc("unshare", CLONE_NEWNS | (CLONE_NEWUSER if user else 0))
    if user:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"0 {user} 1"),
            ("gid_map", f"0 {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    _mount("none", "/", "", MS_REC | MS_PRIVATE)


@pytest.fixture
def with_mounts(in_process):
    """Runs a function in a process that can mount."""
    error = in_process(_own_mounts)
    if error is not None:
        pytest.skip(f"nothing can be mounted here: {error}")

    def run(function):
        def run_there():
            _own_mounts()
            return function()

        result = in_process(run_there)
        if isinstance(result, Exception):
            raise result
        return result

    return run


def test_disk_that_is_full_at_any_moment(tiny, with_mounts, in_process, tmp_path):
    """A cache of every size from nothing to enough: a clear error each time, then the value."""
    (tmp_path / "cache").mkdir()

    def fill_and_empty():
        said = []
        for kilobytes in range(8, 400, 28):
            _mount("none", tmp_path / "cache", "tmpfs", 0, f"size={kilobytes}k")
            result = in_process(tiny.value)
            if result == 101:
                break
            assert isinstance(result, (OSError, jit_loader.CompileError))
            said.append(str(result))
            _mount("none", tmp_path / "cache", "tmpfs", MS_REMOUNT, "size=10m")
            assert in_process(tiny.value) == 101
            assert not list((tmp_path / "cache").rglob(".building-*"))
        return said

    said = with_mounts(fill_and_empty)
    assert len(said) >= 3
    for text in said:
        assert "No space left on device" in text, text
        assert "JIT_LOADER_CACHE" in text or "the disk is full" in text, text


def test_full_disk_of_the_compilers_temporary_files(tiny, with_mounts, monkeypatch, tmp_path):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))

    def fill_and_empty():
        _mount("none", tmp_path / "temporary", "tmpfs", 0, "size=4k")
        (tmp_path / "temporary" / "all there is").write_bytes(bytes(4096))
        with pytest.raises(jit_loader.CompileError) as error:
            tiny.load()
        _mount("none", tmp_path / "temporary", "tmpfs", MS_REMOUNT, "size=10m")
        return str(error.value), tiny.value()

    message, value = with_mounts(fill_and_empty)
    assert "No space left on device" in message
    assert "the disk is full" in message
    assert value == 101


def test_cache_where_no_folder_can_be(tiny, monkeypatch):
    monkeypatch.setenv("JIT_LOADER_CACHE", "/proc/nowhere")
    with pytest.raises(OSError, match=r"cannot be written .* JIT_LOADER_CACHE"):
        tiny.load()


def test_read_only_cache(tiny, with_mounts, in_process, tmp_path):
    """A hit works there; a build says what to do."""
    assert in_process(tiny.value) == 101

    def load_and_build():
        _mount(str(tmp_path / "cache"), tmp_path / "cache", "", MS_BIND)
        _mount("none", tmp_path / "cache", "", MS_BIND | MS_REMOUNT | MS_RDONLY)
        assert tiny.value() == 101
        tiny.write("value.h", "#define VALUE 2\n")
        with pytest.raises(OSError, match="cannot be written") as error:
            tiny.load()
        return str(error.value)

    assert "JIT_LOADER_CACHE" in with_mounts(load_and_build)
    assert in_process(tiny.value) == 102
