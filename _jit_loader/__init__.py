"""How jit_loader does it: one module per question. The public face is jit_loader.py.

Here is the way in: from a question to a module, by a look at the last answer (hit.py), else by a
look at contents and a build (looking.py).
"""

import contextlib
import functools
import os
import sys
import time

from _jit_loader import hit


class Loaded:
    """How an extension came to be loaded: compiled or from the cache, in how many seconds.

    result: what load returned for it. path: of the library.
    """

    def __init__(self, name, result, path, compiled, with_cuda, seconds):
        self.name = name
        self.result = result
        self.path = path
        self.compiled = compiled
        self.with_cuda = with_cuda
        self.seconds = seconds

    def __repr__(self):
        how = "compiled" if self.compiled else "from the cache"
        return f"<{self.name}: {how} in {self.seconds:.3f} s, {self.path}>"


last_loaded = {}  # name, or title of a variant: Loaded


def load(name, kind, arguments, requests, form="module", verbose=False, title=None):
    """Loads an extension, from the cache where a build fits, else built. Returns a Loaded.

    kind, arguments: all that requests() depends on but files and environment, for its memo.
    requests(): what to look for in the cache, in this order; the last is what is built.
    title: what to call it, by default its name.
    """
    started = time.perf_counter()
    if "JIT_LOADER_SYNC" in os.environ:
        _synchronize_launches()
    paths = hit.memo_paths(kind, arguments)
    for memo in _unchanged(paths):
        result = hit.open_if_there(memo.library, name, form)
        if result is not None:
            found = result, memo.library, False, memo.with_cuda
            break
    else:
        from _jit_loader.looking import look_or_build  # no part of a hit

        found = look_or_build(requests(), paths[0], verbose)
    loaded = Loaded(name, *found, time.perf_counter() - started)
    last_loaded[title or name] = loaded
    if loaded.with_cuda:
        _advise_on_faults()
    return loaded


def is_unchanged(kind, arguments):
    """Whether load would find its answer without a look at contents."""
    return any(True for _ in _unchanged(hit.memo_paths(kind, arguments)))


def _unchanged(paths):
    """Yields the memos whose answer holds."""
    for path in paths:
        memo = hit.Memo.read(path)
        if memo is None or not hit.is_in_a_cache(memo.library):
            continue
        with contextlib.suppress(FileNotFoundError):
            hit.check_trusted(path)  # a memo names code to load, the checker, itself
        if memo.is_unchanged():
            yield memo


def _synchronize_launches():
    from _jit_loader import faults

    if faults.is_asked_to_synchronize():
        faults.synchronize_launches()


@functools.cache
def _advise_on_faults():
    """From now on the traceback of a CUDA kernel's fault is followed by what to do about it."""
    show = sys.excepthook

    def show_and_advise(kind, error, traceback):
        show(kind, error, traceback)
        _advise(error)

    sys.excepthook = show_and_advise
    if "IPython" in sys.modules:
        from IPython import get_ipython

        if (shell := get_ipython()) is not None:
            shell.events.register("post_run_cell", lambda result: _advise(result.error_in_exec))


def _advise(error):
    if isinstance(error, RuntimeError):
        from _jit_loader import faults

        faults.advise(error)
