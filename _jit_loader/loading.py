"""From a question to a module: a look at the memo of its last answer, and only then at more."""

import time

from _jit_loader.memo import Memo
from _jit_loader.modules import import_build
from _jit_loader.question import memo_path


class Loaded:
    """How an extension came to be loaded: compiled or from the cache, in how many seconds."""

    def __init__(self, name, compiled, seconds, with_cuda, path):
        self.name = name
        self.compiled = compiled
        self.seconds = seconds
        self.with_cuda = with_cuda
        self.path = path

    def __repr__(self):
        how = "compiled" if self.compiled else "from the cache"
        return f"<{self.name}: {how} in {self.seconds:.3f} s, {self.path}>"


last_loaded = {}  # name: Loaded


def load(name, kind, arguments, requests):
    """The module of an extension, from the cache where a build fits, else built.

    kind, arguments: all that requests() depends on but files and environment, for its memo.
    requests(): what to look for in the cache, in this order; the last is what is built.
    """
    started = time.perf_counter()
    path = memo_path(kind, arguments)
    memo = Memo.read(path)
    if memo is not None and memo.is_unchanged():
        module, compiled, with_cuda = import_build(memo.library, name), False, memo.with_cuda
    else:
        from _jit_loader.looking import look_or_build  # no part of a hit

        module, compiled, with_cuda = look_or_build(requests(), path)
    seconds = time.perf_counter() - started
    last_loaded[name] = Loaded(name, compiled, seconds, with_cuda, module.__file__)
    return module
