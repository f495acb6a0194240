"""Errors of network file systems that do no harm do not fail a load."""

import builtins
import errno
import os

from _jit_loader import this_process
from _jit_loader.cache import cache_folder


def fail(monkeypatch, function, number, condition=lambda *arguments: True):
    """Makes a function of os fail with an error number for the arguments that fit."""
    real = getattr(os, function)

    def failing(*arguments, **options):
        if condition(*arguments):
            raise OSError(number, os.strerror(number))
        return real(*arguments, **options)

    monkeypatch.setattr(os, function, failing)


def test_build_without_sync_and_modes_is_published(tiny, monkeypatch):
    fail(monkeypatch, "fsync", errno.EINVAL)
    fail(monkeypatch, "chmod", errno.EPERM)
    assert tiny.value() == 101
    tiny.settle()
    assert tiny.compiled() == ["module.cpp", "other.cpp"]


def test_stale_handle_of_a_lock_or_a_file_to_sync_is_opened_again(tiny, monkeypatch):
    stale = set()

    def is_first(path, *_):
        name = os.path.basename(path)
        is_first = name in {"lock", "user_files.json", "manifest.json"} - stale
        stale.update([name] if is_first else [])
        return is_first

    fail(monkeypatch, "open", errno.ESTALE, is_first)
    assert tiny.value() == 101
    assert stale == {"lock", "user_files.json", "manifest.json"}


def test_objects_are_reused_without_links_and_times(tiny, monkeypatch):
    fail(monkeypatch, "link", errno.EOPNOTSUPP)
    fail(monkeypatch, "utime", errno.EPERM, lambda path, *_: os.path.basename(path) != ".clock")
    fail(monkeypatch, "chmod", errno.EPERM)
    assert tiny.value() == 101
    tiny.compiled()
    tiny.write("value.h", "#define VALUE 2\n")
    assert tiny.value() == 102
    assert tiny.compiled() == ["module.cpp"]


def test_file_that_another_machine_has_replaced_is_opened_again(tiny, monkeypatch):
    tiny.settle()
    tiny.compiled()
    this_process.libraries.clear()
    real, stale = builtins.open, set()

    def open_once_stale(path, *arguments, **options):
        is_cached = isinstance(path, str) and path.startswith(cache_folder())
        if is_cached and path not in stale:
            stale.add(path)
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
        return real(path, *arguments, **options)

    monkeypatch.setattr(builtins, "open", open_once_stale)
    assert tiny.value() == 101
    assert {os.path.basename(path) for path in stale} > {"manifest.json", "user_files.json"}
    assert tiny.compiled() == []
