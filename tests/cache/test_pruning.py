"""The cache stays below its limit, and removals do not affect processes that load or build."""

import os
import shutil
import time
from pathlib import Path

import pytest

from _jit_loader import this_process
from _jit_loader.cache import cache_folder, lock, pruning


@pytest.fixture(autouse=True)
def measured_by_each_build(monkeypatch):
    monkeypatch.setattr(pruning, "PAUSE_SECONDS", 0)


def build(tiny, value):
    """Builds a version of the extension; returns its module and the folder of its build."""
    tiny.write("value.h", f"#define VALUE {value}\n")
    module = tiny.load()
    assert module.value() == value + 100
    return module, os.path.dirname(module.__file__)


def set_last_use(folder, seconds):
    """Sets the time at which a build was last changed and used."""
    os.utime(Path(folder) / "tiny.so", (seconds, seconds))


def test_build_over_the_limit_removes_the_least_recently_used_build(tiny, monkeypatch):
    folders = [build(tiny, value)[1] for value in (1, 2, 3)]
    for age, folder in zip((300, 100, 200), folders):
        set_last_use(folder, time.time() - age)
    size = pruning.size_of(cache_folder())
    monkeypatch.setenv("JIT_LOADER_CACHE_LIMIT", str(size))
    folders.append(build(tiny, 4)[1])
    assert [os.path.exists(folder) for folder in folders] == [False, True, True, True]
    assert pruning.size_of(cache_folder()) <= size


def test_new_build_is_kept_whatever_the_limit(tiny, monkeypatch, capfd):
    old = build(tiny, 1)[1]
    monkeypatch.setenv("JIT_LOADER_CACHE_LIMIT", "1B")
    monkeypatch.setenv("JIT_LOADER_QUIET", "0")
    assert os.path.exists(build(tiny, 2)[1])
    assert not os.path.exists(old)
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("cache: removed 1 old build, ")
    assert last.endswith(": its limit is 1 B")


def test_limit_of_zero_means_no_limit(tiny, monkeypatch):
    monkeypatch.setenv("JIT_LOADER_CACHE_LIMIT", "0")
    folders = [build(tiny, value)[1] for value in (1, 2)]
    assert all(map(os.path.exists, folders))


def test_prune_compares_last_use_and_not_creation(tiny):
    first, second = (build(tiny, value)[1] for value in (1, 2))
    now = time.time()
    set_last_use(second, now - 200)
    os.utime(Path(first) / "tiny.so", (now - 100, now - 300))  # older, but loaded since
    pruning.prune(max_age=150)
    assert os.path.exists(first)
    assert not os.path.exists(second)


def test_objects_shared_by_builds_count_once(tiny):
    build(tiny, 1)
    before = pruning.size_of(cache_folder())
    second = build(tiny, 2)[1]
    shared = os.path.getsize(Path(second) / "other.o")
    both = pruning.size_of(cache_folder())
    assert both - before <= pruning.size_of(second) - shared / 2
    assert both - 1000 < pruning.clean().size < both, "the folders' small files do not count"
    assert pruning.size_of(cache_folder()) == 0


def test_clean_leaves_no_file(tiny):
    tiny.settle()
    tiny.write("other.cpp", "int a = ;\n")
    tiny.error(RuntimeError)
    pruning.clean()
    assert not [path for path in Path(cache_folder()).rglob("*") if path.is_file()]
    tiny.write("other.cpp", 'extern "C" long other(void) { return 100; }\n')
    assert tiny.value() == 101


def write_inline(name):
    """Writes a source of load_inline, as if a minute ago; returns its folder."""
    folder = Path(cache_folder()) / "inline" / name
    folder.mkdir(parents=True)
    (folder / "main.cpp").write_text("int a;\n" * 10_000)
    return folder


def make_old(path, seconds=4000):
    """Sets the last use of a file, or of a folder and its files."""
    for file in [path, *path.glob("*")]:
        os.utime(file, (time.time() - seconds,) * 2)


def test_sources_of_load_inline_are_removed_unless_they_may_be_in_use(tiny):
    old, new = write_inline("0123456789"), write_inline("9876543210")
    make_old(old)
    pruning.prune(max_size=0)
    assert (old.exists(), new.exists()) == (False, True)
    make_old(new)
    pruning.clean()
    assert not new.exists()


def test_memos_and_sources_count_and_are_removed_before_builds_that_are_used(tiny, monkeypatch):
    """Each boot of each machine writes memos: the old ones do not displace the builds."""
    _, folder = build(tiny, 1)
    monkeypatch.setenv("JIT_LOADER_CACHE_LIMIT", str(2 * pruning.size_of(cache_folder())))
    (memo,) = (Path(cache_folder()) / "memos").iterdir()
    for boot in range(100):
        copy = memo.with_name(f"{memo.name}{boot}")
        shutil.copy(memo, copy)
        make_old(copy)
    make_old(write_inline("0123456789"))
    build(tiny, 2)
    assert os.path.exists(folder)
    assert pruning.size_of(cache_folder()) < pruning.cache_limit()
    assert memo.exists()


def test_cache_is_not_measured_again_at_once(tiny, monkeypatch):
    monkeypatch.setattr(pruning, "PAUSE_SECONDS", 1e6)
    first = build(tiny, 1)[1]
    monkeypatch.setenv("JIT_LOADER_CACHE_LIMIT", "1B")
    build(tiny, 2)
    assert os.path.exists(first)
    monkeypatch.setattr(time, "time", lambda real=time.time: real() + 1e9)
    build(tiny, 3)
    assert not os.path.exists(first)


@pytest.mark.parametrize("depth", ["name", "request", "build"])
def test_symlinks_are_not_followed(tiny, tmp_path, depth):
    folder = Path(build(tiny, 1)[1])
    linked = {"name": folder.parent.parent, "request": folder.parent, "build": folder}[depth]
    outside = tmp_path / "outside"
    before = pruning.size_of(cache_folder())
    linked.rename(outside)
    linked.symlink_to(outside)
    files = sorted(outside.rglob("*"))
    linked_size = before - pruning.size_of(cache_folder())
    own = [path for path in files if path.is_file() and path.stat().st_nlink == 1]
    assert linked_size > 0.9 * sum(path.stat().st_size for path in own)
    pruning.prune(max_size=1, max_age=0)
    pruning.clean(["tiny"])
    pruning.clean()
    assert sorted(outside.rglob("*")) == files


def test_build_removed_between_lookup_and_import_is_rebuilt(tiny, monkeypatch):
    build(tiny, 1)
    this_process.libraries.clear()
    open_library = this_process._open

    def remove_first(*arguments):
        monkeypatch.setattr(this_process, "_open", open_library)
        pruning.clean()
        return open_library(*arguments)

    monkeypatch.setattr(this_process, "_open", remove_first)
    assert tiny.value() == 101


def test_folder_with_a_running_build_is_left_alone(tiny):
    _, folder = build(tiny, 1)
    request_folder = os.path.dirname(folder)
    with lock.build_lock(request_folder, "tiny"):
        pruning.clean()
        assert os.path.exists(folder)
    pruning.clean()
    assert not os.path.exists(folder)


def make_leftover(folder):
    """Makes what a killed process leaves, an hour ago."""
    (folder / "object.o").parent.mkdir(parents=True)
    (folder / "object.o").write_bytes(b"0")
    make_old(folder)


@pytest.mark.parametrize("remove", [pruning.prune, pruning.clean])
def test_leftovers_of_killed_processes_are_removed(tiny, remove):
    _, folder = build(tiny, 1)
    beside = Path(folder).parent
    without_build = Path(cache_folder()) / "precompiled-headers" / "key"
    leftovers = [beside / ".building-x", without_build / ".building-x"]
    leftovers.append(Path(cache_folder()) / ".removed-x")
    for leftover in leftovers:
        make_leftover(leftover)
    (without_build / "lock").touch()
    new = beside / ".building-new"
    new.mkdir()
    with lock.build_lock(without_build, "header"):
        remove()
        assert [leftover.exists() for leftover in leftovers] == [False, True, False]
    remove()
    assert not without_build.exists()
    assert new.exists() or not beside.exists()


def test_folder_of_a_request_without_builds_is_removed(tiny):
    folder = Path(cache_folder()) / "tiny" / "key"
    folder.mkdir(parents=True)
    for name in ("lock", "flags.json"):
        (folder / name).touch()
    pruning.clean()
    assert folder.exists(), "a process may be about to build in it"
    make_old(folder)
    pruning.clean()
    assert not folder.exists()
