"""Memos detect every change of their files."""

import os
import time
from types import SimpleNamespace

import pytest

from _jit_loader.cache import Memo, is_settled, stamp
from _jit_loader.cache.store import STATS_EQUAL, differences, helper_path
from _jit_loader.key.digests import Digests, read_digest
from _jit_loader.key.roots import Roots


@pytest.fixture(params=["Python", "compiled"], autouse=True)
def compiled(request, cache):
    """Returns (path, stamp) of the library that compares stats, or None for memos without it."""
    path = helper_path(STATS_EQUAL, Digests())
    assert os.path.exists(path)
    return (path, stamp(path)) if request.param == "compiled" else None


@pytest.fixture
def memo(compiled):
    """Returns a function that makes the memo of files."""

    def make(files, absent=()):
        entries = [(str(path), stamp(path), read_digest(path)) for path in files]
        entries += [(str(path), None, None) for path in absent]
        return Memo.of("/cache/library.so", True, entries, compiled=compiled)

    return make


@pytest.fixture
def files(tmp_path):
    """Returns 1100 files in three folders, which the compiled comparison gives to threads."""
    odd = dict(enumerate(["with space", "quo'te", 'dou"ble', "$dollar", "naïve-日本"]))
    paths = [tmp_path / f"folder{i // 500}" / odd.get(i, f"file{i}") for i in range(1100)]
    for i, path in enumerate(paths):
        path.parent.mkdir(exist_ok=True)
        path.write_text(str(i))
    return paths


def test_unchanged_files_are_a_hit(memo, files, tmp_path):
    assert memo(files, absent=[tmp_path / "absent"]).is_unchanged()
    assert memo(files[:1]).is_unchanged()
    assert memo([]).is_unchanged()


@pytest.mark.parametrize("index", [*range(5), 300, 700, 1099])
def test_each_change_of_a_file_is_seen(memo, files, index):
    path = files[index]
    before = memo(files)
    text, status = path.read_text(), path.stat()
    path.write_text(text + "!")
    assert not before.is_unchanged(), "a new size is a change"
    path.write_text(text)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert not before.is_unchanged(), "a write that restores the mtime is a change"
    before = memo(files)
    path.unlink()
    assert not before.is_unchanged(), "a removal is a change"


def test_a_file_that_may_have_changed_hides_no_other_change(memo, files):
    before = memo(files)
    files[700].write_text("changed")
    assert before.is_unchanged(but=[str(files[0]), str(files[700])])
    assert not before.is_unchanged(but=[str(files[0]), f"{files[700]}.o"])


@pytest.mark.parametrize("changed", ["user.cu", "system.h", "tool", "g++", "new.h"])
def test_a_manifest_and_its_memo_have_the_same_differences(memo, tmp_path, changed):
    paths = [tmp_path / name for name in ("user.cu", "system.h", "tool", "g++")]
    rows = [{str(path): path.write_text("") or read_digest(path)} for path in paths]
    manifest = {"files": rows[0] | rows[1], "user files": [str(paths[0])], "tools": rows[2]}
    manifest |= {"programs": {"cxx": read_digest(paths[3])}, "absent": {str(tmp_path): ["new.h"]}}
    request = SimpleNamespace(roots=Roots("/project"), programs={"cxx": str(paths[3])})
    of_build = memo([*paths, tmp_path])
    (tmp_path / changed).write_text("changed")
    found = [*differences(manifest, request, Digests(), of_build)]
    assert found == [*differences(manifest, request, Digests())] != []


def test_absent_file_that_appears_is_seen(memo, files, tmp_path):
    before = memo(files, absent=[tmp_path / "absent"])
    (tmp_path / "absent").write_text("")
    assert not before.is_unchanged()


@pytest.mark.parametrize("damage", [bytes(16), b"U" * 16, b""], ids=["zeroed", "changed", "cut"])
def test_damaged_memo_gives_a_miss_unless_its_digests_are_right(memo, files, tmp_path, damage):
    """A hit does not verify the checksum of the names, so a damaged name must match no file."""
    path = tmp_path / "memo"
    before = memo(files[:5])
    content = before.to_bytes()
    for start in range(0, len(content), 16):
        path.write_bytes(content[:start] + damage + content[start + 16 :])
        damaged = Memo.read(path)
        if damaged is not None and damaged.is_unchanged():
            assert damage, "a part is missing"
            assert damaged.known().items() <= before.known().items()


def test_memo_can_hold_the_root_folder(compiled):
    """If the include path /nowhere does not exist, the memo holds the stat of the root folder."""
    root = Memo.of("/cache/library.so", True, [("/", stamp("/"), None)], compiled=compiled)
    assert list(root.paths()) == ["/"]
    assert root.is_unchanged()


@pytest.mark.parametrize(
    ("ahead_seconds", "settled"),
    [(-10, True), (0, False), (5, False)],  # 5: a file server's clock is ahead
)
def test_stat_is_settled_unless_it_is_recent(ahead_seconds, settled):
    now = time.time_ns()
    modified = now + ahead_seconds * 1_000_000_000
    assert is_settled((1, modified, now - 10_000_000_000, 1)) == settled
    assert not is_settled((1, modified, now, 1))


def test_library_that_compares_stats_can_disappear_at_any_time(files, tmp_path):
    """Another process may clean the cache between the stat of the library and its opening."""
    entries = [(str(path), stamp(path), read_digest(path)) for path in files[:8]]
    gone = str(tmp_path), stamp(str(tmp_path))
    before = Memo.of("/cache/library.so", True, entries, compiled=gone)
    assert before.is_unchanged()
    files[7].write_text("changed")
    assert not before.is_unchanged()
