"""Loads an extension with new device code, while another process builds it completely."""

import contextlib
import os
import shutil
import threading
import time

from _jit_loader import this_process
from _jit_loader.build.byproducts import can_be_live
from _jit_loader.build.job import Job, is_noted, private_folder, read_note
from _jit_loader.build.ninja import Compilation
from _jit_loader.build.precompiled import Headers
from _jit_loader.cache import build_directory, cache_folder, digest_of
from _jit_loader.cache.files import link_or_copy, read_checked
from _jit_loader.cache.lock import is_locked
from _jit_loader.cache.memo import stamp
from _jit_loader.cache.store import USER_FILES, Build, family_of
from _jit_loader.key import COMMON_NVCC_FLAGS, common_nvcc_flags, cuda_home_of_program
from _jit_loader.key.digests import read_digest
from _jit_loader.live.edit import LIVE, NotLive, find_edit
from _jit_loader.live.host_code import host_digest
from _jit_loader.live.launches import launches_of, open_launches
from _jit_loader.live.patch import patch, restore
from _jit_loader.live.program import compile_edit
from _jit_loader.report.text import say
from _jit_loader.system import is_set

# For example NVRTC is missing, the code does not compile or is not understood, the cache is
# read-only, or a class is registered again: a complete build then works or shows the error.
FALLBACK = (ValueError, RuntimeError, ImportError, OSError)
# The environment variables that add flags to nvcc's commands.
ADD_FLAGS = {
    *("PYTORCH_NVCC", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CUDA_INC_PATH"),
    *("INCLUDES", "SYSTEM_INCLUDES", "CUDAFE_FLAGS", "PTXAS_FLAGS"),
}

ops = {}  # _key: the LiveOp, while no complete build is loaded
# The keys of these are Builds.family.
_never = set()  # those whose edits take the complete build; see _audit
_unchecked = {}  # the folders of complete builds that _audit has seen, without live.json: titles
_locks = {}  # the lock of the thread that makes the live edit

# A forked child lacks the threads that may have held them.
os.register_at_fork(after_in_child=_locks.clear)


class LiveOp:
    """An op that runs newer device code than that of its last complete build.

    path: of its library. launches: its launches.Launches. codes: the program.DeviceCode of each
    source. process: the process that makes the complete build, if this process has started it.
    lock: the path of the file that it keeps locked.
    """

    def __init__(self, edit, path, launches, codes):
        self.edit, self.path = edit, path
        self.launches, self.codes = launches, codes
        self.process = self.lock = None

    def is_being_built(self):
        """Returns whether the complete build may still come."""
        is_ours = self.process is not None and self.process.poll() is None
        return is_ours or is_locked(self.lock)


def _key(builds):
    """Returns a key for the calls of one extension: copies of a project share a family."""
    return builds.family, None if builds.request.text else builds.memo_path


def load_edit(builds, digests, start_build):
    """Loads the current files as a live edit of a build, if possible; returns the Loaded.

    Returns None if a complete build has to be made: other code differs, NVRTC does not compile the
    device code as nvcc does, or the process that makes the build has ended without one.

    start_build(lock, host_objects): starts that process; see loading.start_build.

    Threads that load the same edit get the same module: one makes it, the other threads wait.
    """
    with _locks.setdefault(builds.family, threading.RLock()):
        live = _load_edit(builds, digests, start_build)
    # It is open: this makes a Loaded for this call.
    return live and this_process.open_build(live.path, *builds.request.to_open, compiled=True)


def _load_edit(builds, digests, start_build):
    """Returns the LiveOp, or None."""
    started, request, edit = time.perf_counter(), builds.request, None
    with contextlib.suppress(*FALLBACK):
        edit = _find(builds, digests)
    key = _key(builds)
    live = ops.get(key)
    if live is not None and edit is not None and live.edit.user_files == edit.user_files:
        return live if live.is_being_built() else None
    if live is not None and live.process is not None:
        live.process.terminate()  # its build is out of date
    if edit is None:
        return None
    version = digest_of([builds.folder, sorted(edit.user_files.items())])
    try:
        live = _open(edit, builds, digests)
        live.lock = os.path.join(cache_folder(), "background", version)
        live.process = start_build(live.lock, [source.host_object for source in edit.sources])
    except FALLBACK:
        return None
    ops[key] = live
    what = "new device code" if not edit.outputs else "new device code and CPU code"
    how = f"{what} in {time.perf_counter() - started:.1f} s; the complete build follows"
    say(f"{request.title}: {edit.changed} changed: {how}")
    return live


def why_complete(builds, digests):
    """Returns why the current files need a complete build, in a few words; None if they do not.

    It compiles the device code, because NVRTC may give the reason, but no CPU code.
    """
    try:
        edit = _find(builds, digests)
        with open(edit.build.library, "rb") as file:
            launches = launches_of(file.read())
        for source in edit.sources:
            compile_edit(edit, source, launches.handles.keys())
    except FALLBACK as error:
        return str(error).partition("\n")[0]
    return None


def _audit(title, this):
    """Compares the host code of a complete build with that of the live edit before it.

    They are equal, unless the lexer has mistaken host code for device code. Then a warning is
    printed, and the op takes complete builds from now on.

    this: a this_process.Loaded.
    """
    folder = os.path.dirname(this.path)
    family, files = family_of(os.path.dirname(folder)), None
    for key, live in list(ops.items()):
        if key[0] == family and this.path != live.path:
            files = files or read_checked(os.path.join(folder, USER_FILES))
            if files == live.edit.user_files:
                _audit_one(key, live, title, this)


def _audit_one(key, live, title, this):
    host_objects = [source.host_object for source in live.edit.sources]
    if warning := warning_of_host_code(title, this.path, host_objects):
        _never.add(key[0])
        say(f"{warning}. In this process, further edits of this op take the complete build")
    _unchecked[os.path.dirname(this.path)] = title
    ops.pop(key, None)


def _audit_device_code(*_):
    """Prints a warning once the self-check has found that a live edit ran other device code."""
    for folder, title in list(_unchecked.items()):
        if os.path.exists(os.path.join(folder, LIVE)):
            del _unchecked[folder]
            if warning := warning_of_device_code(title, folder):
                say(warning)


this_process.after_load += [_audit, _audit_device_code]


def warning_of_host_code(title, library, host_objects):
    """Returns a warning if the host code of a complete build differs from that of a live edit.

    host_objects: the paths of the objects with the host code that the edit ran with.
    """
    folder = os.path.dirname(library)
    with contextlib.suppress(OSError):
        now = [os.path.join(folder, os.path.basename(before)) for before in host_objects]
        if list(map(host_digest, now)) != list(map(host_digest, host_objects)):
            return _warning(title, "also changed host code, but ran with the old host code")
    return None


def warning_of_device_code(title, folder):
    """Returns a warning if the self-check of a complete build has found that NVRTC's code differs.

    folder: of the build. Its live.json then makes further edits take the complete build.
    """
    for answer in (read_checked(os.path.join(folder, LIVE)) or {}).values():
        if any(answer["kernels"].values()):
            return _warning(title, f"ran other device code than now: {answer['reason']}")
    return None


def _warning(title, what):
    return (
        f"{title}: warning: the last edit of a kernel {what}. Results computed since that edit may "
        "be wrong: compute them again"
    )


def _find(builds, digests):
    """Returns the Edit; raises NotLive if the complete build has to be made."""
    request = builds.request
    if builds.family in _never:
        raise NotLive("an earlier edit of host code was mistaken for one of device code")
    if not request.with_cuda:
        raise NotLive("it has no CUDA code")
    if is_set("JIT_LOADER_NO_COMPILE"):
        raise NotLive("JIT_LOADER_NO_COMPILE is set")
    # Without a GPU a program cannot use the kernels; it may be there to build them. 1: for tests.
    if os.environ.get("JIT_LOADER_LIVE") != "1" and not can_be_live():
        raise NotLive("JIT_LOADER_LIVE is 0, or this machine has no GPU")
    if common_nvcc_flags() != COMMON_NVCC_FLAGS or cuda_home_of_program() is not None:
        raise NotLive("the program has changed settings in torch.utils.cpp_extension")
    if (note := read_note(builds.folder)) is not None and is_noted(note, request, digests):
        raise NotLive("the complete build of these files has failed")
    if flags := ADD_FLAGS & {*request.description["environment variables"]}:
        raise NotLive(f"the environment variable {min(flags)} is set")
    return find_edit(builds, digests)


def _open(edit, builds, digests):
    """Returns the LiveOp of an edit, without its process."""
    request, path, codes = builds.request, edit.build.library, None
    if not request.text and this_process.users.get(path, set()) - {builds.memo_path}:
        raise NotLive("another call has loaded the library, from a copy of the files for example")
    # The program may use the modules of two texts of load_inline. Operators have no copies.
    if edit.outputs or (request.text and not edit.registers):
        return _open_new(edit, builds, digests)
    if path not in this_process.libraries:
        # First, because a process that has opened it may not be able to open the complete build.
        with open(path, "rb") as file:
            launches_of(file.read())
        codes = _compiled(edit, set())
        this_process.open_build(path, *request.to_open)
    if request.build_directory:
        path = build_directory.put_build(request.build_directory, path)
    library, launches = open_launches(path)
    codes = _patched(edit, library, launches, codes, digests)

    def take_back():
        restore(library, digests)
        ops.pop(_key(builds), None)

    this_process.patched[edit.build.library] = edit.user_files, take_back
    return LiveOp(edit, edit.build.library, launches, codes)


def _compiled(edit, launched):
    """Returns the DeviceCode of each source; launched: as for compile_edit."""
    return [compile_edit(edit, source, launched) for source in edit.sources]


def _patched(edit, library, launches, codes, digests):
    """Patches a library; returns the DeviceCodes, with the kernels that the library has launched.

    codes: those that are compiled already, or None.
    """
    while codes is None or not patch(library, launches, codes, digests):
        codes = _compiled(edit, launches.launched())
    return codes


def _open_new(edit, builds, digests):
    """Returns the LiveOp of an edit whose library is a new one, which is deleted once it is open.

    If the edit is one of formulas, it has new objects for the CPU; otherwise it is a copy.
    """
    request, last = builds.request, ops.get(_key(builds))
    user_files = {request.roots.absolute(name): digest for name, digest in edit.user_files.items()}
    before = list(map(stamp, user_files))
    with private_folder(builds.folder) as folder:
        if edit.outputs:
            path = _link(edit, builds, folder, digests)
        else:
            path = shutil.copy(edit.build.library, folder)
        if list(map(stamp, user_files)) != before or any(
            read_digest(path) != user_files[path] for path in user_files
        ):
            raise NotLive("a file changed during the build")  # either version may have been read
        library, launches = open_launches(path)
        codes = _compiled(edit, last.launches.launched() if last else set())
        codes = _patched(edit, library, launches, codes, digests)
        this_process.open_build(path, *request.to_open, compiled=True)
    return LiveOp(edit, path, launches, codes)


def _link(edit, builds, folder, digests):
    """Links new objects for the CPU with the others of the build; returns the library's path."""
    job = Job(builds, folder, digests)
    for output in set(job.ninja_file.compilations) - set(edit.outputs):
        link_or_copy(os.path.join(edit.build.folder, output), os.path.join(folder, output))
    with Compilation(job, edit.outputs, Headers(job, edit.outputs)) as compilation:
        for _ in compilation.steps():
            pass
    if compilation.returncode != 0:
        raise NotLive("the CPU code does not compile")
    return Build(folder, builds.request).library
