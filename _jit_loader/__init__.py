"""How jit_loader does it: one module per question. The public face is jit_loader.py.

Here is the way in: from a question to a module, by a look at the last answer (hit.py), else by a
look at contents and a build (looking.py).
"""

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


last_loaded = {}  # name: Loaded


def load(name, kind, arguments, requests, form="module", verbose=False):
    """Loads an extension, from the cache where a build fits, else built. Returns a Loaded.

    kind, arguments: all that requests() depends on but files and environment, for its memo.
    requests(): what to look for in the cache, in this order; the last is what is built.
    """
    started = time.perf_counter()
    paths = hit.memo_paths(kind, arguments)
    for path in paths:
        memo = hit.Memo.read(path)
        if memo is not None and hit.is_in_a_cache(memo.library) and memo.is_unchanged():
            result = hit.open_if_there(memo.library, name, form)
            if result is not None:
                found = result, memo.library, False, memo.with_cuda
                break
    else:
        from _jit_loader.looking import look_or_build  # no part of a hit

        found = look_or_build(requests(), paths[0], verbose)
    last_loaded[name] = loaded = Loaded(name, *found, time.perf_counter() - started)
    return loaded
