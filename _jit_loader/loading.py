"""Loads an extension: through an earlier load's memo, else from the cache, else by a build."""

import contextlib
import contextvars
import os
import sys
import time

from _jit_loader import fork_lock, this_process
from _jit_loader.cache import Memo, check_trusted, is_in_a_cache
from _jit_loader.key import memo_paths

# The functions that return the requests of a call; here by name, because another process may make
# the call.
REQUESTS = {
    "load": "_jit_loader.torch_api:requests_of_load",
    "load_inline": "_jit_loader.torch_api:requests_of_load_inline",
    "load_op": "_jit_loader.ops.project:requests",
}


class Call:
    """A call of load.

    kind, arguments: a key of REQUESTS, and a list of values of JSON. They name the memo, and are
    all that requests() depends on apart from files and environment variables.
    precompile: as in key.request.Request.
    """

    def __init__(self, kind, arguments, precompile=False):
        self.kind, self.arguments, self.precompile = kind, arguments, precompile

    def requests(self):
        """Returns the requests to look for in the cache, in this order.

        If none is there, the last is built.
        """
        import pkgutil

        found = pkgutil.resolve_name(REQUESTS[self.kind])(*self.arguments)
        found[-1].precompile = self.precompile
        return found


class _Called(BaseException):
    """Carries the Call of a load that is not made. No wrapper's `except Exception` catches it."""


class NotCached(Exception):
    """No build in the cache fits, and the caller wants none to be made."""


_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep

_recorded_name = contextvars.ContextVar("recorded_name", default=())


def call_of(name, function):
    """Runs a function up to its first load of this name, and returns the Call of that load.

    Nothing is loaded under this name; other extensions are. Returns None if there is no such load.
    """
    token = _recorded_name.set(name)
    try:
        function()
    except _Called as called:
        return called.args[0]
    finally:
        _recorded_name.reset(token)
    return None


def load(
    name,
    call,
    form="module",
    verbose=False,
    title=None,
    build_directory=None,
    may_build=True,
    may_be_live=True,
):
    """Loads an extension, from the cache or by a build, and returns a this_process.Loaded.

    call: the Call.
    title: the name to show, by default the extension's.
    build_directory: the caller's folder. It gets copies, and the library is opened from there.
    may_build: if it is false, NotCached is raised instead of building.
    may_be_live: whether a live edit is made instead of a build, if that is possible.
    """
    started = time.perf_counter()
    if sys.platform != "linux":
        raise RuntimeError(
            f"{title or name}: ops are built on Linux only, and this is {sys.platform}; load and "
            "load_inline are PyTorch's own here"
        )
    if _recorded_name.get() == name:
        raise _Called(call)
    paths = memo_paths(call.kind, call.arguments)
    opened = (
        this_process.open_build(memo.library, name, form, memo.with_cuda, build_directory)
        for memo in unchanged(paths)
    )
    this = next(filter(None, opened), None)
    if this is None:
        all_builds, digests, this = find_build(call.requests, paths[0])
    if this is None and may_be_live:
        this = _load_edit(call, all_builds[-1], digests)
    if this is None:
        if not may_build:
            raise NotCached(name)
        with fork_lock():
            from _jit_loader.build.build import build

        this = build(all_builds, digests, verbose)
    this.seconds, this.call = time.perf_counter() - started, call
    this_process.last[title or name] = this
    this_process.users.setdefault(this.path, set()).add(paths[0])
    for function in this_process.after_load:
        function(title or name, this)
    return this


def make(call, **options):
    """Makes a Call; returns the Loaded. options: of load."""
    request = call.requests()[-1]
    options |= {"title": request.title, "build_directory": request.build_directory}
    return load(request.name, call, request.form, **options)


def _load_edit(call, builds, digests):
    """Makes a live edit of an earlier build, if that is possible; returns the Loaded, or None."""
    if not builds.request.with_cuda or not builds.earlier():
        return None
    with fork_lock():
        from _jit_loader.live.load import load_edit

    return load_edit(builds, digests, lambda *arguments: start_build(call, *arguments))


def start_build(call, lock=None, host_objects=()):
    """Starts a low-priority process that makes a complete build for a call, and returns it.

    lock: the path of a file that the process keeps locked until it ends. If another process has it
    locked, none is started, and None is returned.
    host_objects: the objects whose host code a live edit runs with. The process prints an error, or
    that the complete build has other host code, if it has a terminal to print to: the program may
    not load the extension again.
    """
    with fork_lock():
        from _jit_loader.cache.lock import lock_if_free
        from _jit_loader.system.jobs import parallel_jobs
        from _jit_loader.system.pool import call_in_background

    variables = {**os.environ, "MAX_JOBS": str(min(2, parallel_jobs())), "JIT_LOADER_QUIET": "1"}
    if host_objects:
        variables["JIT_LOADER_LIVE"] = "0"  # that process makes the self-check itself
    options = {"env": variables}
    if host_objects and os.isatty(2):
        options["stderr"] = None  # this process's
    arguments = f"{__name__}:build_in_turn", [call.kind, call.arguments, list(host_objects)], 10
    if lock is None:
        return call_in_background(*arguments, **options)
    os.makedirs(os.path.dirname(lock), exist_ok=True)
    with lock_if_free(lock) as descriptor:
        if descriptor is None:
            return None
        return call_in_background(*arguments, pass_fds=[descriptor], **options)


def build_in_turn(kind, arguments, host_objects):
    """Makes a complete build in the background; see start_build.

    Of the processes that share a cache, one at a time builds.
    """
    from _jit_loader.cache import cache_folder
    from _jit_loader.cache.lock import build_lock

    call = Call(kind, arguments)
    request = call.requests()[-1]
    # Not the cache's lock, for which a part of each build of an op waits.
    with build_lock(os.path.join(cache_folder(), "background"), request.title):
        this = make(call, may_be_live=False)
    if host_objects:
        from _jit_loader.live.load import say_what_differs
        from _jit_loader.live.self_check import self_check

        folder = os.path.dirname(this.path)
        self_check(folder, request.project, host_objects)
        os.environ.pop("JIT_LOADER_QUIET", None)
        say_what_differs(request.title, folder)


def shortened(error):
    """Returns an error to raise again from the function that has caught it.

    If a raise statement of the loader raised the error, its message says what is wrong, so the
    loader's other frames and the cause are removed. Frames of a caller's own function, such as
    on_load, stay, and so do all frames of an error that the loader did not expect.
    """
    import traceback

    last = traceback.extract_tb(error.__traceback__)[-1]
    frames = error.__traceback__.tb_next  # raising it again adds the caller's frame
    if _is_loaders(last.filename) and last.line.startswith("raise "):
        # By the module's file: the code of a dataclass's __init__ has none.
        while frames is not None and _is_loaders(frames.tb_frame.f_globals.get("__file__", "")):
            frames = frames.tb_next
        error.__cause__ = None
    return error.with_traceback(frames)


def _is_loaders(path):
    return os.path.basename(path) == "jit_loader.py" or path.startswith(_FOLDER)


def is_unchanged(call):
    """Returns whether load would answer a call from a memo."""
    return any(True for _ in unchanged(memo_paths(call.kind, call.arguments)))


def unchanged(paths):
    """Yields the memos that are still valid; paths: of memo_paths()."""
    for path in filter(os.path.exists, paths):  # the user may not enter the cache of another
        with contextlib.suppress(FileNotFoundError):
            check_trusted(path)  # a memo names code to load
            memo = Memo.read(path)
            if memo is not None and is_in_a_cache(memo.library) and memo.is_unchanged():
                yield memo


def find_build(requests, memo_path):
    """Looks for a build by content; returns (all Builds, Digests for a build of the last, Loaded).

    requests(): returns the requests to look for, as for Call. The Loaded is None if none has a
    build that fits.
    """
    with fork_lock():  # a hit in a memo does not need these modules, and requests() imports more
        from _jit_loader.cache.store import Builds
        from _jit_loader.key.digests import Digests

        wanted = requests()
    looked_at = {path: stamp for request in wanted for path, stamp in request.looked_at.items()}
    all_builds = [Builds(request, memo_path, looked_at) for request in wanted]
    for builds in all_builds:
        digests = Digests(builds.known())
        build = builds.find(digests)
        this = build and this_process.open_build(build.library, *builds.request.to_open)
        if this is not None:
            return all_builds, digests, this
    return all_builds, digests, None
