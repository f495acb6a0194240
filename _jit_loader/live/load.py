"""Loads an op with new device code, while another process builds it completely."""

import contextlib
import os
import threading

from _jit_loader import this_process
from _jit_loader.build.job import private_folder
from _jit_loader.cache.files import read_checked
from _jit_loader.cache.memo import stamp
from _jit_loader.cache.store import USER_FILES
from _jit_loader.key.digests import read_digest
from _jit_loader.live.edit import NotLive, find_edit
from _jit_loader.live.first_launch import compile_at_first_launch, launches_of
from _jit_loader.live.host_code import host_digest
from _jit_loader.live.patch import link_library, with_device_code
from _jit_loader.live.program import compile_edit
from _jit_loader.report.build_line import say
from _jit_loader.system import is_set
from _jit_loader.system.processes import Workers

# For example NVRTC is missing, the code does not compile or is not understood, the cache is
# read-only, or a class is registered again: a complete build then works or shows the error.
FALLBACK = (ValueError, RuntimeError, ImportError, OSError)
# The environment variables that add flags to nvcc's commands.
ADD_FLAGS = {
    *("PYTORCH_NVCC", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CUDA_INC_PATH"),
    *("INCLUDES", "SYSTEM_INCLUDES", "CUDAFE_FLAGS", "PTXAS_FLAGS"),
}

ops = {}  # the folder of a request's builds: its LiveOp, while no complete build is loaded
_never = set()  # the folders of requests whose edits take the complete build; see _audit
_locks = {}  # the folder of a request's builds: the lock of the thread that makes its live edit

# A forked child lacks the threads that may have held them.
os.register_at_fork(after_in_child=_locks.clear)


class LiveOp:
    """An op whose current module has newer device code than its last complete build.

    module: the edit's module. library: the path that it was opened from. code: its
    program.DeviceCode. launches: its first_launch.Launches, or None. process: the process that
    makes the complete build.
    """

    def __init__(self, edit, module, library, code, launches):
        self.edit, self.module, self.library = edit, module, library
        self.code, self.launches, self.process = code, launches, None

    def launched(self):
        """Returns the mangled names of the kernels that this module or an earlier one launched."""
        return self.code.kernels | (self.launches.launched() if self.launches else set())


def load_edit(builds, digests, start_build):
    """Loads the current files as a live edit of a build, if possible; returns the Loaded.

    Returns None if a complete build has to be made: other code differs, NVRTC does not compile the
    device code as nvcc does, or the process that makes the build has ended without one.

    start_build(edit): starts that process and returns it.

    Threads that load the same edit get the same module: one makes it, the other threads wait.
    """
    with _locks.setdefault(builds.folder, threading.RLock()):
        live = _load_edit(builds, digests, start_build)
    # It is open: this makes a Loaded for this call.
    return live and this_process.open_build(live.library, *builds.request.to_open, compiled=True)


def _load_edit(builds, digests, start_build):
    """Returns the LiveOp, or None."""
    request, edit = builds.request, None
    with contextlib.suppress(*FALLBACK):
        edit = _find(builds, digests)
    live = ops.get(builds.folder)
    if live is not None and edit is not None and live.edit.keys[1] == edit.keys[1]:
        return live if live.process.poll() is None else None
    if live is not None:
        live.process.terminate()  # its build is out of date
    if edit is None:
        return None
    try:
        live = _open(edit, builds, digests, launched(request.title))
        live.process = start_build(edit)
    except FALLBACK:
        return None
    ops[builds.folder] = live
    what = "new device code" if not edit.outputs else "new device code and CPU code"
    say(f"{request.title}: {edit.changed} changed: {what}; the complete build follows")
    return live


def why_complete(builds, digests):
    """Returns why the current files need a complete build, in a few words; None if they do not.

    It compiles the device code, because NVRTC may give the reason, but no CPU code.
    """
    try:
        edit = _find(builds, digests)
        with open(edit.build.library, "rb") as file:
            everything = {kernel["mangled"] for kernel in edit.record["kernels"]}
            compile_edit(edit, file.read(), everything)
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
    builds_folder = os.path.dirname(folder)
    live = ops.get(builds_folder)
    if live is None or this.path == live.library:
        return
    if read_checked(os.path.join(folder, USER_FILES)) != live.edit.user_files:
        return  # another version
    if warning := warning_of_host_code(title, this.path, live.edit.host_object):
        _never.add(builds_folder)
        say(f"{warning}. In this process, further edits of this op take the complete build")
    ops.pop(builds_folder, None)


this_process.after_load.append(_audit)


def warning_of_host_code(title, library, before):
    """Returns a warning if the host code of a complete build differs from that of a live edit.

    before: the path of the object with the host code that the edit ran with.
    """
    with contextlib.suppress(OSError):
        now = os.path.join(os.path.dirname(library), os.path.basename(before))
        if host_digest(now) != host_digest(before):
            return (
                f"{title}: warning: the last edit of a kernel also changed host code, but ran with "
                "the old host code. Results computed since that edit may be wrong: compute them "
                "again"
            )
    return None


def _find(builds, digests):
    """Returns the Edit; raises NotLive if the complete build has to be made."""
    request = builds.request
    if builds.folder in _never:
        raise NotLive("an earlier edit of host code was mistaken for one of device code")
    if not request.with_cuda or request.form != "module" or request.build_directory:
        raise NotLive("not an op with CUDA code")
    if is_set("JIT_LOADER_NO_COMPILE"):
        raise NotLive("JIT_LOADER_NO_COMPILE is set")
    if flags := ADD_FLAGS & {*request.description["environment variables"]}:
        raise NotLive(f"the environment variable {min(flags)} is set")
    return find_edit(builds, digests)


def launched(title):
    """Returns the mangled names of the kernels that this process has launched of an op."""
    if (last := this_process.last.get(title)) is None:
        return set()
    for live in ops.values():
        if live.library == last.path:
            return live.launched()
    with contextlib.suppress(OSError), open(last.path, "rb") as file:
        launches = launches_of(file.read())
        if launches is not None and (launches := launches.at(last.path)):
            return launches.launched()
    return set()


def _open(edit, builds, digests, launched):
    """Returns the LiveOp of an edit, without its process; the library is deleted once it is open.

    launched: the mangled names of the kernels to compile first.
    """
    request, (library, code) = builds.request, _library(edit, builds, digests, launched)
    with private_folder(builds.folder) as folder:
        path = os.path.join(folder, os.path.basename(edit.build.library))
        with open(path, "wb") as file:
            file.write(library)
        launches = compile_at_first_launch(path, code, digests) if code.others else None
        this = this_process.open_build(path, *request.to_open, compiled=True)
    return LiveOp(edit, this.result, path, code, launches)


def _library(edit, builds, digests, launched):
    """Returns the bytes of the build's library with the code of the edit, and its DeviceCode."""
    request = builds.request
    with open(edit.build.library, "rb") as file:
        library = file.read()
    if not edit.outputs:
        code = compile_edit(edit, library, launched)
        return with_device_code(library, code.cubin), code
    user_files = {request.roots.absolute(name): digest for name, digest in edit.user_files.items()}
    before = list(map(stamp, user_files))
    with Workers() as workers:
        linked = workers.submit(link_library, builds, digests, edit.build, edit.outputs)
        code = compile_edit(edit, library, launched)
        library = linked.result()
    if list(map(stamp, user_files)) != before or any(
        read_digest(path) != user_files[path] for path in user_files
    ):
        raise NotLive("a file changed during the build")  # a compiler may have read either version
    return with_device_code(library, code.cubin), code
