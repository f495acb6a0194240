"""A load compares not only the stat, but also the content, of files that changed shortly before."""

import os
import time
from types import SimpleNamespace

import pytest

from _jit_loader.cache import memo
from _jit_loader.key import contents, young_files


@pytest.fixture
def built(tiny, monkeypatch):
    """Returns the extension after its first build. Its files stay young."""
    monkeypatch.setattr(memo, "SETTLED_NS", 600_000_000_000)
    assert tiny.value() == 101
    return tiny


def read_memo(extension):
    (path,) = (extension.folder.parent / "cache").rglob("memos/*")
    return path, memo.Memo.read(path)


def give_memos_the_current_stats(extension):
    """Makes the memos say that no stat has changed, as after two writes in one tick of a clock."""
    for path in (extension.folder.parent / "cache").rglob("memos/*"):
        before = memo.Memo.read(path)
        entries = [(name, memo.stamp(name), None) for name in before.paths()]
        after = memo.Memo.of(before.library, before.with_cuda, entries, before.young)
        assert after.is_unchanged()
        path.write_bytes(after.to_bytes())


def test_hit_after_a_build_reads_only_young_files(tiny, monkeypatch):
    compiler = os.stat(tiny.calls_path.parent / "c++").st_ctime_ns
    time.sleep(0.02)
    for name in ("module.cpp", "value.h"):
        tiny.write(name, (tiny.folder / name).read_text())
    # The clock stands still, shortly after the compiler was installed.
    monkeypatch.setattr(memo, "SETTLED_NS", 1_000_000)
    monkeypatch.setattr(memo, "time", SimpleNamespace(time_ns=lambda: compiler + 10_000_000))
    assert tiny.value() == 101
    read = []

    def read_digest(path):
        read.append(os.path.basename(path))
        return contents.read_digest(path)

    monkeypatch.setattr(young_files, "read_digest", read_digest)
    monkeypatch.setattr(
        "_jit_loader.loading.look_or_build", lambda *_: pytest.fail("the lookup was repeated")
    )
    assert tiny.value() == 101
    assert sorted(read) == ["module.cpp", "value.h"]


def test_young_file_that_was_written_again_is_compiled(built):
    built.write("value.h", "#define VALUE 2\n")
    give_memos_the_current_stats(built)
    assert built.value() == 102


def test_file_that_appears_in_a_young_folder_is_seen(built):
    """A value.h beside the source is included instead of the one on the include path."""
    built.write("include/value.h", "#define VALUE 3\n")
    (built.folder / "value.h").unlink()
    folder = str(built.folder / "include")
    assert built.value(extra_include_paths=[folder]) == 103
    built.write("value.h", "#define VALUE 4\n")
    give_memos_the_current_stats(built)
    assert built.value(extra_include_paths=[folder]) == 104


def test_first_hit_after_the_files_are_old_enough_writes_a_settled_memo(built, monkeypatch):
    assert read_memo(built)[1].young
    monkeypatch.setattr(memo, "SETTLED_NS", 0)
    assert built.value() == 101
    path, settled = read_memo(built)
    assert not settled.young
    written = path.stat().st_mtime_ns
    assert built.value() == 101
    assert path.stat().st_mtime_ns == written


def test_digest_of_a_young_file_is_not_known(built):
    """Another extension with the same header reads the file instead of trusting the memo."""
    path, known = str(built.folder / "value.h"), read_memo(built)[1].known()
    assert known.get(path) is None
    assert path not in dict(known.items())
