"""Code is loaded only from this user's cache and from caches that are configured as shared."""

import os
import pwd
import shutil
import time

import pytest

import jit_loader
from _jit_loader.cache import FORMAT, Memo, cache_folder, check_trusted
from _jit_loader.cache.lock import build_lock
from tests.support.extension import inline_module

LOAD = "import sys, torch, jit_loader; jit_loader.load('tiny', sys.argv[1:])"


def test_only_the_owner_may_read_the_cache(tiny, tmp_path):
    tiny.load()
    (folder,) = (tmp_path / "cache").iterdir()
    assert folder.stat().st_mode & 0o077 == 0


def test_cache_of_a_user_with_a_shared_umask_is_not_refused(cache, in_process):
    """002 is the default of several distributions."""

    def load_inline():
        os.umask(0o002)
        return inline_module(5).value()

    def wait_in_background():
        os.umask(0o002)
        with build_lock(os.path.join(cache_folder(), "background"), "letter"):
            check_trusted(cache_folder())
            return 5

    for first in (load_inline, wait_in_background):
        assert in_process(first) == 5
        shutil.rmtree(cache_folder())


def test_user_without_a_home_folder_is_told_to_name_a_cache(tiny, monkeypatch, tmp_path):
    """In a container with an unknown user id. A folder named ~ must not appear."""

    def no_entry(uid):
        raise KeyError(uid)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for name in ("", "~/cache"):
        monkeypatch.setenv("JIT_LOADER_CACHE", name)
        tiny.error(FileNotFoundError, match="Set JIT_LOADER_CACHE to an absolute path")
    assert not os.path.lexists("~")


@pytest.mark.parametrize(
    "mode", [0o777, *(pytest.param(m, marks=pytest.mark.slow) for m in (0o720, 0o1777))]
)
def test_cache_that_others_can_write_to_is_refused(tiny, python, tmp_path, monkeypatch, mode):
    tiny.settle()
    tiny.compiled()
    (folder,) = (tmp_path / "cache").iterdir()
    folder.chmod(mode)
    assert f"{mode:04o}" in python("-c", LOAD, *tiny.sources).stderr
    with monkeypatch.context() as patch:
        patch.setattr(Memo, "read", lambda path: pytest.fail("the memo is read"))
        tiny.error(PermissionError, match="chmod go-w")
    tiny.write("value.h", "#define VALUE 2\n")
    tiny.error(PermissionError, match="chmod go-w")
    folder.chmod(0o700)
    assert tiny.value() == 102


def test_library_that_others_can_write_to_is_refused(tiny, python, tmp_path):
    tiny.settle()
    (folder,) = (tmp_path / "cache").iterdir()
    (library,) = folder.rglob("tiny.so")
    library.chmod(0o666)
    time.sleep(0.05)
    tiny.load()  # writes a memo with the new ctime
    finished = python("-c", LOAD, *tiny.sources)
    assert finished.stderr == "", "no other user can reach a file in a folder of mode 0700"
    folder.chmod(0o755)
    message = python("-c", LOAD, *tiny.sources).stderr
    assert library.name in message
    assert "JIT_LOADER_READONLY_CACHES" in message


def test_cache_of_another_user_is_refused(tiny, tmp_path, monkeypatch):
    tiny.settle()
    (folder,) = (tmp_path / "cache").iterdir()
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    if folder.stat().st_uid == 0:
        pytest.skip("files of root are trusted")
    tiny.write("value.h", "#define VALUE 2\n")
    tiny.error(PermissionError, match="belongs to user")


def test_shared_cache_is_searched_before_a_build_and_never_written(tiny, tmp_path, monkeypatch):
    shared = tmp_path / "shared"
    monkeypatch.setenv("JIT_LOADER_CACHE", str(shared))
    tiny.load()
    tiny.compiled()
    (shared / FORMAT).chmod(0o777)
    monkeypatch.setenv("JIT_LOADER_READONLY_CACHES", f"{tmp_path / 'empty'}:{shared}")
    before = sorted(shared.rglob("*"))
    for own in ("/dev/null", "own", "own"):  # the user cannot enter the first
        monkeypatch.setenv("JIT_LOADER_CACHE", str(tmp_path / own))
        assert tiny.value() == 101
        assert jit_loader.loaded("tiny").path.startswith(str(shared))
        assert tiny.compiled() == []
    assert sorted(shared.rglob("*")) == before
    tiny.write("value.h", "#define VALUE 2\n")
    assert tiny.value() == 102
    assert jit_loader.loaded("tiny").path.startswith(str(tmp_path / "own"))
    assert sorted(shared.rglob("*")) == before
