"""From a request to a module: look, and build only where nothing fits."""

import os
import time

from _jit_loader import modules
from _jit_loader.store import Slot


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


def load_request(request):
    """The module of an extension, from the cache where a build fits, else built."""
    started = time.perf_counter()
    slot = Slot(request)
    found = slot.look()
    module = None if found is None else _import_if_there(found, request.name)
    compiled = False
    if module is None:
        from _jit_loader.build import build

        module, compiled = build(request, slot)
    seconds = time.perf_counter() - started
    last_loaded[request.name] = Loaded(
        request.name, compiled, seconds, request.with_cuda, module.__file__
    )
    return module


def _import_if_there(found, name):
    """The module of a build; None where somebody has removed it since the look."""
    try:
        return modules.import_build(found, name)
    except ImportError:
        if os.path.exists(found.library):
            raise
        return None
