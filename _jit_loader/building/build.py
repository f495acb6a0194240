"""Who builds: one process at a time, until nothing changes under its hands."""

import contextlib
import errno
import glob
import os
import shutil
import time

from _jit_loader import hit, toolchain
from _jit_loader.building.attempt import Attempt, private_prefix
from _jit_loader.building.errors import CudaMissing, ToolMissing
from _jit_loader.building.inputs import InputsChanged
from _jit_loader.building.lock import build_lock
from _jit_loader.building.ninja_run import ninja_path
from _jit_loader.building.shared_failure import raise_shared_failure, read_failure
from _jit_loader.hit import cache_folder, check_trusted
from _jit_loader.pruning import cache_limit, keep_under_limit
from _jit_loader.registrations import refuse_second_registration

ATTEMPTS = 3
CACHE_ERRORS = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR),
    *(errno.ENOSPC, errno.EDQUOT),
)
DAY_SECONDS = 24 * 60 * 60


def build(request, slot, verbose):
    """Builds what is asked for, or waits for who is building it.

    Returns (what hit.open_build gives, its Build, whether it was compiled here).
    """
    refuse_second_registration(request.name, hit.opened_libraries(request.name))
    failure_before = read_failure(slot)
    check_tools(request)
    check_paths(request)
    check_flags(request)
    limit = cache_limit()
    try:
        os.makedirs(cache_folder(), mode=0o700, exist_ok=True)
        check_trusted(cache_folder())
        published = None
        while published is None:
            with build_lock(slot.folder, request.title, until=slot.has_new_answer) as excludes:
                found = slot.look()
                opened = found and hit.open_if_there(found.library, request.name, request.form)
                if opened is not None:
                    return opened, found, False
                if excludes is None:
                    continue  # it was the answer for other files, or has been removed since
                raise_shared_failure(slot, failure_before)
                _remove_leftovers(slot.folder, excludes)
                opened, published = _build_until_stable(request, slot, verbose)
    except OSError as error:
        if error.errno in CACHE_ERRORS or not os.path.isdir(cache_folder()):
            raise _explained(error, slot.folder) from error
        raise
    keep_under_limit(limit, published.folder)
    return opened, published, True


def check_tools(request):
    """Raises a ToolMissing that says what to install where a needed tool is missing."""
    command = toolchain.cxx_command()
    if toolchain.find_program(command[0]) is None:
        raise ToolMissing(
            f"{request.title} has to be compiled, and the C++ compiler {command[0]!r} was not "
            "found on PATH. Install g++ (Debian, Ubuntu: apt-get install g++), or name a compiler "
            "in the environment variable CXX"
        )
    if ninja_path() is None:
        raise ToolMissing(
            f"{request.title} has to be compiled, and ninja was not found. Run: pip install ninja"
        )
    if request.with_cuda and (why_not := toolchain.why_no_cuda()) is not None:
        raise CudaMissing(f"{request.title} has CUDA code to compile: {why_not}")


def check_paths(request):
    """Refuses what no compiler could take, before any is started."""
    for source in request.sources:
        if not os.path.isfile(source):
            raise FileNotFoundError(f"{request.title}: there is no source file {source}")
        if "," in os.path.basename(source) and source.endswith((".cu", ".cuh")):
            raise ValueError(f"{request.title}: nvcc takes no file name with a comma: {source}")
    # nvcc puts paths between double quotes into commands for the shell.
    tool, refused = ("nvcc", '\n\t$"`') if request.with_cuda else ("ninja", "\n")
    for path in [*request.sources, *request.extra_include_paths]:
        if set(path) & set(refused):
            raise ValueError(
                f"{request.title}: {tool} takes no path with any of {refused!r} in it: {path!r}"
            )
    for source in request.sources:
        if "|" in source:
            raise ValueError(
                f"{request.title}: ninja takes no source with a '|' in its path: {source!r}"
            )
    for path in request.extra_include_paths:
        _check_text(path, f"{request.title}: extra_include_paths")


def _check_text(text, where):
    """Refuses bytes that are no text: PyTorch could not write them into build.ninja."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{where} has bytes that are not UTF-8: {text!r}") from None


def check_flags(request):
    """Refuses flags that ninja, or the shell that it runs, could not take."""
    arguments = {
        "extra_cflags": request.extra_cflags,
        "extra_cuda_cflags": request.extra_cuda_cflags,
        "extra_ldflags": request.extra_ldflags,
        **{f"the flags of {source}": flags for source, flags in request.source_flags.items()},
    }
    for argument, flags in arguments.items():
        for flag in flags:
            _check_text(flag, f"{request.title}: {argument}")
            if "\n" in flag:
                raise ValueError(
                    f"{request.title}: ninja takes no flag with a line break in it: {flag!r} in "
                    f"{argument}"
                )
        toolchain.split(" ".join(flags), f"{request.title}: {argument}")


def _build_until_stable(request, slot, verbose):
    before, careful = {}, False
    for _ in range(ATTEMPTS):
        os.makedirs(slot.folder, exist_ok=True)
        attempt = Attempt(request, slot, before, careful, verbose)
        try:
            return attempt.run(), attempt.published
        except InputsChanged as error:
            changed, careful = error.args[0], True
    raise RuntimeError(
        f"{request.title}: {', '.join(changed)} kept changing while being compiled; "
        "load it again when nothing writes there"
    )


def _remove_leftovers(slot_folder, excludes):
    """What killed builds left.

    Who does not exclude others cannot know whether somebody works there; nor can anybody of another
    machine's, as on some network file systems a lock holds on each machine alone.
    """
    age_seconds = 0 if excludes else DAY_SECONDS
    for folder in glob.glob(os.path.join(glob.escape(slot_folder), ".building-*")):
        ours = os.path.basename(folder).startswith(private_prefix())
        _remove(folder, age_seconds if ours else DAY_SECONDS)
    for folder in glob.glob(os.path.join(glob.escape(slot_folder), ".damaged-*")):
        _remove(folder, age_seconds)


def _remove(folder, age_seconds):
    with contextlib.suppress(OSError):
        if time.time() - os.stat(folder).st_mtime >= age_seconds:
            shutil.rmtree(folder, ignore_errors=True)


def _explained(error, folder):
    """An error of the cache as a whole with what to do about it."""
    return OSError(
        error.errno,
        f"the cache folder {folder} cannot be written ({error.strerror}); make room there, or "
        "name another folder in the environment variable JIT_LOADER_CACHE",
    )
