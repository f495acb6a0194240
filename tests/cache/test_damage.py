"""After any damage to the files of the cache, the next run gives the right value."""

import errno
import fcntl
import os
import shutil
import socket
import time
from pathlib import Path

import pytest

import jit_loader
from _jit_loader.build import job
from _jit_loader.cache import FORMAT
from tests.support.extension import OTHER, fork

DAMAGES = {
    "truncated": lambda data: data[: len(data) // 2],
    "zeroed": lambda data: b"\0" * len(data),
    "empty": lambda data: b"",
    "one bit": lambda data: data[:-1] + bytes([data[-1] ^ 1]) if data else b"\0",
}


def _fill(tiny, in_process):
    """Fills a cache with a good build, a failed build and all other files; returns their paths."""
    tiny.write("other.cpp", "int a = ;\n")
    assert isinstance(in_process(tiny.value), jit_loader.CompileError)
    tiny.write("other.cpp", OTHER)
    assert in_process(tiny.value) == 101
    time.sleep(0.05)
    assert in_process(tiny.value) == 101
    return sorted(path for path in (tiny.folder.parent / "cache").rglob("*") if path.is_file())


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_load_after_damage_to_each_file_is_right(tiny, in_process, damage):
    """Damages files in place, as a machine crash or a faulty disk does.

    The helper is written to the disk before it gets its name.
    """
    files = [path for path in _fill(tiny, in_process) if "stats_equal" not in path.name]
    assert len(files) > 10
    for path in files:
        if path.exists():
            path.write_bytes(DAMAGES[damage](path.read_bytes()))
        assert in_process(tiny.value) == 101, path.name
    # Damage each file again. The edit makes the next build read the objects and their records.
    for path in files:
        if path.exists():
            path.write_bytes(DAMAGES[damage](path.read_bytes()))
    tiny.write("value.h", "#define VALUE 2\n")
    assert in_process(tiny.value) == 102
    tiny.write("other.cpp", "int a = ;\n")
    assert "other.cpp:1: error: " in str(in_process(tiny.value))


def test_load_after_deletion_of_each_file_is_right(tiny, in_process):
    for path in _fill(tiny, in_process):
        if path.exists():
            path.unlink()
        assert in_process(tiny.value) == 101, path.name


def test_build_in_a_cache_that_another_process_deletes_and_fills_succeeds(tiny, start_build):
    builder = start_build(2)
    tiny.restore_compiler()
    shutil.rmtree(tiny.folder.parent / "cache")
    assert tiny.value() == 101
    builder.join()
    assert builder.exitcode == 0


def test_processes_on_a_file_system_without_locks_do_not_affect_each_other(
    tiny, wait_for, monkeypatch
):
    """Each process builds, and publishes its build."""

    def no_locks(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    begun = tiny.slow_down(0.5)
    with fork.Pool(4) as processes:
        loads = [processes.apply_async(tiny.value)]
        wait_for(begun.exists)
        loads += [processes.apply_async(tiny.value) for _ in range(3)]
        assert [load.get(60) for load in loads] == [101] * 4
    assert len(list((tiny.folder.parent / "cache").rglob("manifest.json"))) == 4
    assert tiny.incomplete() == []


@pytest.mark.parametrize("place", ["without a lock", "another machine"])
def test_folder_that_a_process_may_build_in_is_kept_for_a_day(tiny, monkeypatch, place):
    """Locks of a network file system may exclude only processes of one machine, or none."""
    tiny.load()
    request_folder = tiny.lock_path().parent
    job.new_folder(request_folder)
    with monkeypatch.context() as patch:
        if place == "another machine":
            patch.setattr(socket, "gethostname", lambda: "another.machine")
        others = [job.new_folder(request_folder, place == "another machine") for _ in range(2)]
    os.utime(others[0], (0, 0))
    tiny.write("value.h", "#define VALUE 2\n")
    assert tiny.value() == 102
    assert tiny.incomplete() == [Path(others[1])]


def test_lock_with_a_stale_handle_is_opened_again(tiny, monkeypatch):
    """NFS reports a stale handle after another machine has replaced the file."""
    real = fcntl.flock

    def stale(*_):
        monkeypatch.setattr(fcntl, "flock", real)
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(fcntl, "flock", stale)
    assert tiny.value() == 101
    assert fcntl.flock is real


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ESTALE])
def test_rename_that_reports_an_error_after_it_was_done_publishes_the_build(
    tiny, monkeypatch, number
):
    """NFS may repeat a request that was successful."""
    real = os.replace

    def replace_and_fail(source, target):
        real(source, target)
        if os.path.basename(target) == "manifest.json":
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", replace_and_fail)
    assert tiny.value() == 101
    assert len(list((tiny.folder.parent / "cache").rglob("manifest.json"))) == 1


@pytest.mark.parametrize("step", ["compilation", "link"])
def test_compiler_that_vanishes_during_a_build_is_an_error(tiny, monkeypatch, step):
    monkeypatch.setenv("CXX", str(tiny.compiler))
    monkeypatch.setenv("MAX_JOBS", "1")
    tiny.change_compiler(f"rm -f {tiny.compiler}; exit 1", step)
    tiny.error()
    tiny.error(RuntimeError, match=r"compiler .* was not found")
    tiny.restore_compiler()
    assert tiny.value() == 101


@pytest.mark.parametrize("is_published", [False, True])
def test_load_after_a_failed_publication_is_right(tiny, monkeypatch, is_published):
    """The disk fails after the module has been imported, before or after the publication."""
    fsync = os.fsync

    def fail(descriptor):
        builds = (tiny.folder.parent / "cache" / FORMAT / "tiny").glob("*/*/manifest.json")
        if any(builds) == is_published:
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        tiny.error(OSError, match="Input/output")
    assert tiny.compiled() == ["module.cpp", "other.cpp"]
    assert tiny.value() == 101
    assert jit_loader.loaded("tiny").compiled is not is_published
