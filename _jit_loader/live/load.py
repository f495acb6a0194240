"""Loads an op with new device code, while another process builds it completely."""

import contextlib
import os
import threading

from _jit_loader import this_process
from _jit_loader.build.job import Job, private_folder
from _jit_loader.build.ninja import Compilation
from _jit_loader.build.plan import Plan
from _jit_loader.build.precompiled import Headers
from _jit_loader.cache import build_directory
from _jit_loader.cache.files import link_or_copy, read_checked
from _jit_loader.cache.memo import stamp
from _jit_loader.cache.store import USER_FILES, Build
from _jit_loader.key.digests import read_digest
from _jit_loader.live.edit import LIVE, NotLive, find_edit
from _jit_loader.live.host_code import host_digest
from _jit_loader.live.launches import launches_of, open_launches
from _jit_loader.live.patch import patch, restore
from _jit_loader.live.program import compile_edit
from _jit_loader.report.build_line import say
from _jit_loader.system import is_set

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
_unchecked = {}  # the folders of complete builds that _audit has seen, without live.json: titles
_locks = {}  # the folder of a request's builds: the lock of the thread that makes its live edit

# A forked child lacks the threads that may have held them.
os.register_at_fork(after_in_child=_locks.clear)


class LiveOp:
    """An op that runs newer device code than that of its last complete build.

    path: of its library. launches: its launches.Launches. code: its program.DeviceCode. process:
    the process that makes the complete build.
    """

    def __init__(self, edit, path, launches, code):
        self.edit, self.path = edit, path
        self.launches, self.code, self.process = launches, code, None


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
    return live and this_process.open_build(live.path, *builds.request.to_open, compiled=True)


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
        live = _open(edit, builds, digests)
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
            launches = launches_of(file.read())
        compile_edit(edit, launches.handles.keys())
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
    if live is None or this.path == live.path:
        return
    if read_checked(os.path.join(folder, USER_FILES)) != live.edit.user_files:
        return  # another version
    if warning := warning_of_host_code(title, this.path, live.edit.host_object):
        _never.add(builds_folder)
        say(f"{warning}. In this process, further edits of this op take the complete build")
    _unchecked[folder] = title
    ops.pop(builds_folder, None)


def _audit_device_code(*_):
    """Prints a warning once the self-check has found that a live edit ran other device code."""
    for folder, title in list(_unchecked.items()):
        if os.path.exists(os.path.join(folder, LIVE)):
            del _unchecked[folder]
            if warning := warning_of_device_code(title, folder):
                say(warning)


this_process.after_load += [_audit, _audit_device_code]


def warning_of_host_code(title, library, before):
    """Returns a warning if the host code of a complete build differs from that of a live edit.

    before: the path of the object with the host code that the edit ran with.
    """
    with contextlib.suppress(OSError):
        now = os.path.join(os.path.dirname(library), os.path.basename(before))
        if host_digest(now) != host_digest(before):
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
    if builds.folder in _never:
        raise NotLive("an earlier edit of host code was mistaken for one of device code")
    if not request.with_cuda or request.form != "module" or request.build_directory:
        raise NotLive("not an op with CUDA code")
    if is_set("JIT_LOADER_NO_COMPILE"):
        raise NotLive("JIT_LOADER_NO_COMPILE is set")
    if flags := ADD_FLAGS & {*request.description["environment variables"]}:
        raise NotLive(f"the environment variable {min(flags)} is set")
    return find_edit(builds, digests)


def _open(edit, builds, digests):
    """Returns the LiveOp of an edit, without its process."""
    if edit.outputs:
        return _open_new(edit, builds, digests)
    request, path = builds.request, edit.build.library
    if path not in this_process.libraries:
        this_process.open_build(path, *request.to_open)
    if request.build_directory:
        path = build_directory.put_build(request.build_directory, path)
    library, launches = open_launches(path)
    code = _patched(edit, library, launches, digests)

    def take_back():
        restore(library, digests)
        ops.pop(builds.folder, None)

    this_process.patched[edit.build.library] = take_back
    return LiveOp(edit, edit.build.library, launches, code)


def _patched(edit, library, launches, digests):
    """Patches a library; returns the DeviceCode, with the kernels that the library has launched."""
    while True:
        code = compile_edit(edit, launches.launched())
        if patch(library, launches, [code], digests):
            return code


def _open_new(edit, builds, digests):
    """Returns the LiveOp of an edit of formulas: its library has new objects for the CPU.

    The library is deleted once it is open.
    """
    request = builds.request
    user_files = {request.roots.absolute(name): digest for name, digest in edit.user_files.items()}
    before = list(map(stamp, user_files))
    with private_folder(builds.folder) as folder:
        path = _link(edit, builds, folder, digests)
        if list(map(stamp, user_files)) != before or any(
            read_digest(path) != user_files[path] for path in user_files
        ):
            raise NotLive("a file changed during the build")  # either version may have been read
        library, launches = open_launches(path)
        code = _patched(edit, library, launches, digests)
        this_process.open_build(path, *request.to_open, compiled=True)
    return LiveOp(edit, path, launches, code)


def _link(edit, builds, folder, digests):
    """Links new objects for the CPU with the others of the build; returns the library's path."""
    job = Job(builds, folder, digests)
    reused = dict.fromkeys(set(job.ninja_file.compilations) - set(edit.outputs))
    for output in reused:
        link_or_copy(os.path.join(edit.build.folder, output), os.path.join(folder, output))
    plan = Plan(reused, dict.fromkeys(edit.outputs))
    with Compilation(job, plan, Headers(job, plan.missing)) as compilation:
        for _ in compilation.steps():
            pass
    if compilation.returncode != 0:
        raise NotLive("the CPU code does not compile")
    return Build(folder, builds.request).library
