"""Loads an extension with new device code, while another process builds it completely."""

import contextlib
import os
import shutil
import threading
import time

from _jit_loader import this_process
from _jit_loader.build.byproducts import can_be_live
from _jit_loader.build.job import is_noted, private_folder, read_note
from _jit_loader.cache import REGISTRATIONS, build_directory, cache_folder, digest_of
from _jit_loader.cache.files import read_checked
from _jit_loader.cache.lock import is_locked
from _jit_loader.cache.store import USER_FILES, family_of
from _jit_loader.key import COMMON_NVCC_FLAGS, common_nvcc_flags, cuda_home_of_program
from _jit_loader.live.edit import LIVE, NotLive, find_edit
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
_unchecked = {}  # folder of a complete build after a live edit: its title, until it is checked
_locks = {}  # Builds.family: the lock of the thread that makes the live edit

# A forked child lacks the threads that may have held them.
os.register_at_fork(after_in_child=_locks.clear)


class LiveOp:
    """An extension that runs newer device code than that of its last complete build.

    path: of its library, or of the copy that was opened instead. launches: its launches.Launches.
    codes: the program.DeviceCode of each source. process: the process that makes the complete
    build, if this process has started it. lock: the path of the file that it keeps locked.
    """

    def __init__(self, edit, path, launches, codes):
        self.edit, self.path = edit, path
        self.launches, self.codes = launches, codes
        self.process = self.lock = None

    def is_being_built(self):
        """Returns whether the complete build may still come."""
        return (self.process is not None and self.process.poll() is None) or is_locked(self.lock)


def _key(builds):
    """Returns a key for the calls of one extension: copies of a project share a family."""
    return builds.family, None if builds.request.text_digest else builds.memo_path


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
    return live and this_process.open_compiled(live.path, *builds.request.to_open)


def _load_edit(builds, digests, start_build):
    """Returns the LiveOp, or None."""
    started, request, edit = time.perf_counter(), builds.request, None
    with contextlib.suppress(*FALLBACK):
        edit = _find(builds, digests)
    live = ops.get(_key(builds))
    if live is not None and edit is not None and live.edit.user_files == edit.user_files:
        return live if live.is_being_built() else None
    if live is not None and live.process is not None:
        live.process.terminate()  # its build is out of date
    if edit is None:
        return None
    version = digest_of([builds.folder, sorted(edit.user_files.items())])
    try:
        live = _open(edit, builds, digests)
    except FALLBACK:
        return None
    live.lock = os.path.join(cache_folder(), "background", version)
    try:
        live.process = start_build(live.lock, [source.host_object for source in edit.sources])
    except FALLBACK:
        if live.path in this_process.patched:
            this_process.patched.pop(live.path)[1]()
        return None
    ops[_key(builds)] = live
    how = f"new device code in {time.perf_counter() - started:.1f} s; the complete build follows"
    say(f"{request.title}: {edit.changed} changed: {how}")
    return live


def why_complete(builds, digests):
    """Returns why the current files need a complete build, in a few words; None if they do not.

    It compiles the device code, because NVRTC may give the reason, but no CPU code.
    """
    try:
        edit = _find(builds, digests)
        for source in edit.sources:
            compile_edit(source, launches_of(edit.build.library).handles.keys())
    except FALLBACK as error:
        return str(error).partition("\n")[0]
    return None


def _check_edit(title, this):
    """Forgets the live edits that a complete build replaces, and prints what its check has found.

    this: a this_process.Loaded.
    """
    folder = os.path.dirname(this.path)
    family = family_of(os.path.dirname(folder))
    for key, live in list(ops.items()):
        is_other = key[0] == family and live.path != this.path
        if is_other and read_checked(os.path.join(folder, USER_FILES)) == live.edit.user_files:
            del ops[key]
            _unchecked[folder] = title
    for folder, title in list(_unchecked.items()):
        if os.path.exists(os.path.join(folder, LIVE)):
            del _unchecked[folder]
            say_what_differs(title, folder)


this_process.after_load.append(_check_edit)


def say_what_differs(title, folder):
    """Prints a warning if the self-check of a complete build has found that a live edit was wrong.

    folder: of the build. Its live.json then makes the next edit take the complete build.
    """
    for answer in (read_checked(os.path.join(folder, LIVE)) or {}).values():
        if answer["differs"]:
            say(
                f"{title}: warning: the live edit and the complete build differ: {answer['reason']}"
                ". Results computed since that edit may be wrong: compute them again"
            )


def _find(builds, digests):
    """Returns the Edit; raises NotLive if the complete build has to be made."""
    request = builds.request
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
    request, path = builds.request, edit.build.library
    if not request.text_digest and this_process.users.get(path, set()) - {builds.memo_path}:
        raise NotLive("another call has loaded the library, from a copy of the files for example")
    # The program may use the modules of two texts of load_inline. Operators have no copies.
    is_copied = request.text_digest and REGISTRATIONS not in os.listdir(edit.build.folder)
    is_loaded, launched = path in this_process.libraries, set()
    # First, because a process that has opened the library may not be able to open the complete
    # build, and because the edit may not be one of device code alone.
    launches_of(path)
    if is_loaded and not (is_copied or request.build_directory):
        launched = open_launches(path)[1].launched()
    codes = [compile_edit(source, launched, keeps=is_loaded) for source in edit.sources]
    if is_copied:  # the copy is deleted once it is open
        with private_folder(builds.folder) as folder:
            path = shutil.copy(path, folder)
            _, launches, codes = _patched(edit, path, codes, digests)
            this_process.open_compiled(path, *request.to_open)
        return LiveOp(edit, path, launches, codes)
    if not is_loaded:
        this_process.open_build(path, *request.to_open)
    if request.build_directory:
        path = build_directory.put_build(request.build_directory, path)
    library, launches, codes = _patched(edit, path, codes, digests)

    def take_back():
        restore(library, digests)
        ops.pop(_key(builds), None)

    this_process.patched[edit.build.library] = edit.user_files, take_back
    return LiveOp(edit, edit.build.library, launches, codes)


def _patched(edit, path, codes, digests):
    """Opens a library and patches it; returns (ctypes.CDLL, its Launches, the DeviceCodes).

    codes: the DeviceCodes. Those that are returned have all kernels that the library has launched.
    """
    library, launches = open_launches(path)
    while not patch(library, launches, codes, digests):
        codes = [compile_edit(source, launches.launched()) for source in edit.sources]
    return library, launches, codes
