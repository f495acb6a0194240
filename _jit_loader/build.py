"""Who builds: one process at a time, until nothing changes under its hands."""

import contextlib
import glob
import os
import shutil

from _jit_loader import modules, toolchain
from _jit_loader.attempt import Attempt
from _jit_loader.cache import UntrustedCache, cache_folder, check_trusted, read_checked
from _jit_loader.errors import CompileError, LoadError
from _jit_loader.inputs import InputsChanged
from _jit_loader.lock import build_lock
from _jit_loader.ninja_run import ninja_path
from _jit_loader.pruning import cache_limit, keep_under_limit

ATTEMPTS = 3


def build(request, slot, verbose):
    """Builds what is asked for, or waits for who is building it.

    Returns (what modules.open_build gives, its Build, whether it was compiled here).
    """
    modules.refuse_second_registration(request.name)
    failure_before = read_checked(_failure_path(slot))
    check_tools(request)
    limit = cache_limit()
    try:
        os.makedirs(cache_folder(), mode=0o700, exist_ok=True)
        check_trusted(cache_folder())
        with contextlib.suppress(FileNotFoundError):  # a clean meanwhile; the lock makes it again
            os.makedirs(slot.folder, exist_ok=True)
    except UntrustedCache:
        raise
    except OSError as error:
        raise _unwritable(slot.folder, error) from error
    try:
        with build_lock(slot.folder, request.name):
            found = slot.look()
            if found is not None:
                opened = modules.open_build(found.library, request.name, request.form)
                return opened, found, False
            _raise_shared_failure(slot, failure_before)
            _remove_leftovers(slot.folder)
            opened, published = _build_until_stable(request, slot, verbose)
    except UntrustedCache:
        raise
    except PermissionError as error:
        raise _unwritable(slot.folder, error) from error
    keep_under_limit(limit, published.folder)
    return opened, published, True


def check_tools(request):
    """Raises a RuntimeError that says what to install where a needed tool is missing."""
    command = toolchain.cxx_command()
    if toolchain.find_program(command[0]) is None:
        raise RuntimeError(
            f"{request.name} has to be compiled, and the C++ compiler {command[0]!r} was not found "
            "on PATH. Install g++ (Debian, Ubuntu: apt-get install g++), or name a compiler in "
            "the environment variable CXX"
        )
    if ninja_path() is None:
        raise RuntimeError(
            f"{request.name} has to be compiled, and ninja was not found. Run: pip install ninja"
        )
    if request.with_cuda and (why_not := toolchain.why_no_cuda()) is not None:
        raise RuntimeError(f"{request.name} has CUDA code to compile: {why_not}")
    for source in request.sources:
        if not os.path.isfile(source):
            raise FileNotFoundError(f"{request.name}: there is no source file {source}")


def _build_until_stable(request, slot, verbose):
    before = {}
    for _ in range(ATTEMPTS):
        attempt = Attempt(request, slot, before, verbose)
        try:
            return attempt.run(), attempt.published
        except InputsChanged as error:
            changed = error.args[0]
        except OSError:
            if os.path.isdir(slot.folder):
                raise
            os.makedirs(slot.folder)  # somebody has deleted the cache meanwhile
            changed = [slot.folder]
    raise RuntimeError(
        f"{request.name}: {', '.join(changed)} kept changing while being compiled; "
        "load it again when nothing writes there"
    )


def _failure_path(slot):
    return os.path.join(slot.folder, "failed", "failure.json")


def _raise_shared_failure(slot, failure_before):
    """Raises the error of a build that another has tried meanwhile, if it was of these files."""
    failure = read_checked(_failure_path(slot))
    if failure is None or failure == failure_before:
        return
    roots, contents = slot.request.roots, slot.contents()
    sources = failure["sources"].items()
    if all(contents.digest(roots.absolute(path)) == digest for path, digest in sources):
        raise (LoadError if failure["is_load_error"] else CompileError)(failure["message"])


def _remove_leftovers(slot_folder):
    """What killed builds left; the lock is ours, so nobody works there."""
    for pattern in (".building-*", ".damaged-*"):
        for folder in glob.glob(os.path.join(glob.escape(slot_folder), pattern)):
            shutil.rmtree(folder, ignore_errors=True)


def _unwritable(folder, error):
    return PermissionError(
        f"the cache folder {folder} cannot be written ({error.strerror}); name another one in the "
        "environment variable JIT_LOADER_CACHE"
    )
